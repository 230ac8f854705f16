"""Mistakes of the user's: each one ends in one error that names the law, the value and the place."""

import numpy as np
import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import ModelNameError, SlimFileError, TraceError, WidthError
from tests.helpers.networks import IMAGE, Forward, pooled


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 1)
        self.mix = nn.Conv2d(8, 12, 1, groups=2)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(pooled(self.mix(self.conv(x))))


@pytest.fixture
def space() -> cafenet.WidthSpace:
    return cafenet.trace(Net(), IMAGE, min_width=3)


def test_every_error_is_one_of_ours():
    errors = (TraceError, WidthError, SlimFileError, ModelNameError)
    assert all(issubclass(error, cafenet.CafeNetError) for error in errors)


@pytest.mark.parametrize(
    ("model", "x", "message"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), IMAGE, r"1: is an output of the model"),
        (nn.Sequential(nn.ReLU(), nn.Flatten()), IMAGE, r"no layer creates channels"),
        (nn.Sequential(nn.Conv2d(3, 1, 1), nn.Conv2d(1, 5, 1)), IMAGE, r"1: is an output of the model"),
    ],
    ids=["one layer", "no layer", "one channel"],
)
def test_nothing_to_search(model: nn.Module, x: torch.Tensor, message: str):
    with pytest.raises(TraceError, match="must have at least one searchable group") as caught:
        cafenet.trace(model, x)
    assert message in str(caught.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_quantised_weights():
    """Packed integers cannot be cut; the message says which layer, of which kind, and what to trace instead."""
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 5))
    quantised = torch.ao.quantization.quantize_dynamic(net, {nn.Linear})
    with pytest.raises(TraceError, match=r"but those of 0 are quantised \(torch\.ao\.nn\.quantized\.dynamic") as caught:
        cafenet.trace(quantised, torch.zeros(1, 3))
    assert caught.match("quantise the slim model")
    assert [group.name for group in cafenet.trace(net, torch.zeros(1, 3)).groups] == ["0"]


def test_four_bit_weights():
    """Libraries replace the layer, or the parameter inside an ordinary layer."""
    packed = type("Params4bit", (nn.Parameter,), {"__module__": "bitsandbytes.nn.modules"})
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 5))
    net[2].weight = packed(torch.zeros(20, 1))
    with pytest.raises(TraceError, match=r"those of 2 are quantised \(bitsandbytes\.nn\.modules\.Params4bit\)"):
        cafenet.trace(net, torch.zeros(1, 3))


def test_verify_without_values():
    """A model on meta can be traced, but there is nothing to run."""
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 5)).to("meta")
    space = cafenet.trace(model, torch.zeros(1, 3))
    with pytest.raises(TraceError, match=r"0.weight is on the meta device"):
        cafenet.verify(space, torch.zeros(1, 3))


@pytest.mark.parametrize("example", [None, 3, "image", np.zeros((1, 3, 8, 8)), iter([IMAGE])], ids=type)
def test_example_input_of_a_wrong_type(example: object):
    with pytest.raises(TraceError, match=r"must be a tensor, a tuple .* or a dict .* but got \w+"):
        cafenet.trace(Net(), example)


@pytest.mark.parametrize("example", [(), [], {}, (1, 2), {"x": None}])
def test_example_input_without_a_tensor(example: object):
    with pytest.raises(TraceError, match="must hold at least one tensor"):
        cafenet.trace(Net(), example)


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (torch.zeros(1, 4, 8, 8), "to have 3 channels, but got 4 channels"),
        (torch.zeros(1, 3), "Expected 3D .* or 4D"),
        ((IMAGE, IMAGE), "positional arguments"),
        ({"image": IMAGE}, "unexpected keyword argument 'image'"),
        (IMAGE.long(), "dtype|type|Long"),
    ],
)
def test_example_input_that_the_model_does_not_take(example: object, message: str):
    with pytest.raises(TraceError, match=r"the model must run on the example inputs") as caught:
        cafenet.trace(Net(), example)
    caught.match(message)


def test_forward_that_raises():
    def forward(net, x):
        raise KeyError("no such table")

    with pytest.raises(TraceError, match="its forward raised KeyError: 'no such table'") as caught:
        cafenet.trace(Forward(forward, conv=nn.Conv2d(3, 8, 1)), IMAGE)
    assert isinstance(caught.value.__cause__, KeyError)


def test_uninitialised_lazy_layer():
    model = nn.Sequential(nn.LazyConv2d(8, 1), nn.Conv2d(8, 5, 1))
    with pytest.raises(TraceError, match="must run on the example inputs"):
        cafenet.trace(model, IMAGE)


@pytest.mark.parametrize("min_width", [0, -1, 0.0, 1.5, -0.5, True, float("nan"), float("inf"), "8", None, [3]])
def test_smallest_width(min_width: object):
    with pytest.raises(TraceError, match=r"min_width must be an int >= 1 .* or a float in \(0, 1\]"):
        cafenet.trace(Net(), IMAGE, min_width=min_width)


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ({"conv": 9}, r"'conv' takes widths from 4 to 8 in multiples of 2, but got 9"),
        ({"conv": 2}, r"'conv' takes widths from 4 to 8 in multiples of 2, but got 2"),
        ({"conv": 0}, r"'conv' takes widths from 4 to 8 .* but got 0"),
        ({"conv": -4}, r"'conv' takes widths from 4 to 8 .* but got -4"),
        ({"conv": 5}, r"'conv' takes widths from 4 to 8 in multiples of 2, but got 5"),
        ({"conv": 10**12}, r"but got 1000000000000"),
        ([3, 14], r"'conv' takes .* but got 3; group 'mix' takes widths from 4 to 12 in multiples of 2, but got 14"),
        ([8], r"one number for each of the 2 groups, but got shape \[1\]"),
        ([8, 12, 5], r"one number for each of the 2 groups, but got shape \[3\]"),
        ([], r"one number for each of the 2 groups, but got shape \[0\]"),
        (8, r"one number for each of the 2 groups, but got shape \[\]"),
        ("8", r"one number for each of the 2 groups"),
        ([[[8, 12]]], r"but got shape \[1, 1, 2\]"),
        ([8.0, 12.0], r"must be whole numbers of channels, but got float64 values"),
        ({"conv": 6.5}, r"must be whole numbers of channels, but got float64 values"),
        ({"conv": None}, r"must be whole numbers of channels"),
        ({"conv": "6"}, r"must be whole numbers of channels"),
        ([True, True], r"must be whole numbers of channels, but got bool values"),
        ([float("nan"), 8], r"must be whole numbers of channels"),
        ([[8, 12], [8]], r"must come in rows of one length"),
        ({"conf": 6}, r"group 'conf' does not exist; did you mean conv\?"),
        ({"backbone.stage4": 6}, r"group 'backbone.stage4' does not exist; groups are conv, mix"),
        ({0: 6}, r"group 0 does not exist"),
    ],
)
@pytest.mark.parametrize("use", ["flops", "params", "widths_dict", "extract", "run"])
def test_widths(space: cafenet.WidthSpace, widths: object, message: str, use: str):
    with pytest.raises(WidthError, match=message):
        space.run(IMAGE, widths) if use == "run" else getattr(space, use)(widths)


def test_one_bad_row_among_many(space: cafenet.WidthSpace):
    rows = np.full((1000, 2), 8)
    rows[700] = (8, 13)
    with pytest.raises(WidthError, match=r"'mix' takes widths from 4 to 12 in multiples of 2, but got 13"):
        space.flops(rows)


@pytest.mark.parametrize("use", ["subnet", "extract", "widths_dict"])
def test_many_width_vectors_where_one_is_needed(space: cafenet.WidthSpace, use: str):
    with pytest.raises(WidthError, match=r"one width vector is needed here, but got an array of shape \[2, 2\]"):
        getattr(space, use)(np.array([[8, 12], [4, 4]]))


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        ({"conv": [0, 1, 2, 8]}, r"'conv' must lie in 0 to 7, but got 0 to 8"),
        ({"conv": [-1, 0, 1, 2]}, r"'conv' must lie in 0 to 7, but got -1 to 2"),
        ({"conv": [0, 4]}, r"'conv' keeps at least 4 channels, but got 2"),
        ({"conv": [0, 1, 4, 6]}, r"channels \[1, 5\] of group 'conv' go together"),
        ({"conv": [0, 0, 4, 4]}, r"'conv' must be distinct whole numbers"),
        ({"conv": [0.0, 1.0, 4.0, 5.0]}, r"'conv' must be distinct whole numbers"),
        ({"conv": []}, r"'conv' must be distinct whole numbers, but got \[\]"),
        ({"conv": 6}, r"'conv' must be distinct whole numbers, but got 6"),
        ({"conv": [[0, 1, 4, 5]]}, r"'conv' must be distinct whole numbers"),
        ({"conv": [True] * 8}, r"'conv' must be distinct whole numbers"),
        ({"conf": [0, 4]}, r"group 'conf' does not exist; did you mean conv\?"),
    ],
)
def test_channels(space: cafenet.WidthSpace, channels: dict, message: str):
    for use in (space.subnet, space.extract):
        with pytest.raises(WidthError, match=message):
            use(channels=channels)


def test_widths_and_channels_together(space: cafenet.WidthSpace):
    with pytest.raises(WidthError, match="give either widths or channels, not both"):
        space.extract({"conv": 4}, channels={"conv": [0, 1, 4, 5]})


@pytest.mark.parametrize("name", ["conf", "", None, 3])
def test_unknown_group(space: cafenet.WidthSpace, name: object):
    for use in (space.group, space.flops_share):
        with pytest.raises(WidthError, match=r"does not exist"):
            use(name)
