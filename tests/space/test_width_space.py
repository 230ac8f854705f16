"""Width spaces: groups, their slots, and costs that are exact for one width vector or a million."""

import numpy as np
import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import WidthError
from cafenet.space.width_group import Frozen
from tests.helpers.networks import IMAGE, Forward, pooled, sizes


class Small(nn.Module):
    """Two convolutions and a linear layer on 8x8 images: 64 places, then 5 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 12, 1, groups=2)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(pooled(self.second(self.norm(self.first(x)).relu())))


@pytest.fixture
def space() -> cafenet.WidthSpace:
    return cafenet.trace(Small(), IMAGE)


def flops(first: int, second: int) -> int:
    """64 places with 27 weights a filter, 64 with a grouped 1x1 convolution, 5 classes."""
    return 64 * 27 * first + 64 * first * second // 2 + 5 * second


def params(first: int, second: int) -> int:
    """Filters, batch norm, the grouped convolution with its bias, the head with its."""
    return 27 * first + 2 * first + first * second // 2 + second + 5 * second + 5


def test_groups(space: cafenet.WidthSpace):
    assert sizes(space) == {"first": (8, 2), "second": (12, 2)}
    assert space.full_widths == {"first": 8, "second": 12}
    assert space.min_widths == {"first": 2, "second": 2}
    assert space.frozen == (Frozen("head", 5, "is an output of the model"),)
    assert space.group("second") is space.groups[1]


def test_full_width(space: cafenet.WidthSpace):
    assert space.flops() == space.flops(space.full_widths) == flops(8, 12) == 13_824 + 3_072 + 60
    assert space.params() == params(8, 12) == sum(p.numel() for p in space.model.parameters())
    assert type(space.flops()) is type(space.params()) is int


@pytest.mark.parametrize("first", [2, 4, 6, 8])
@pytest.mark.parametrize("second", [2, 6, 12])
def test_every_form_of_widths(space: cafenet.WidthSpace, first: int, second: int):
    forms = [
        {"first": first, "second": second},
        {"second": np.int32(second), "first": first},
        [first, second],
        (first, second),
        np.array([first, second]),
        torch.tensor([first, second]),
    ]
    for form in forms:
        assert space.flops(form) == flops(first, second)
        assert space.params(form) == params(first, second)
        assert space.widths_dict(form) == {"first": first, "second": second}


def test_missing_groups_are_at_full_width(space: cafenet.WidthSpace):
    assert space.flops({"second": 4}) == flops(8, 4)
    assert space.widths_dict({}) == space.widths_dict(None) == space.full_widths


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_array_of_width_vectors(space: cafenet.WidthSpace, dtype: type):
    rows = np.array([[a, b] for a in range(2, 9, 2) for b in range(2, 13, 2)], dtype=dtype)
    priced = space.flops(rows)
    assert priced.dtype == np.int64
    assert priced.tolist() == [flops(a, b) for a, b in rows.tolist()] == [space.flops(row) for row in rows]
    assert space.params(rows).tolist() == [params(a, b) for a, b in rows.tolist()]
    assert space.flops(rows.tolist()).tolist() == priced.tolist()
    assert space.flops(rows[:0]).shape == (0,)
    assert space.flops(rows[:1]).tolist() == [flops(2, 2)]


def test_large_arrays_are_priced_in_parts():
    """More rows than are multiplied at once, and a product of three widths, which no matrix product covers."""
    model = Forward(
        lambda net, x: net.head(net.back(net.tokens(net.conv(x).flatten(2)).relu()).mean(2)),
        conv=nn.Conv2d(3, 8, 1, bias=False),
        tokens=nn.Linear(64, 10, bias=False),
        back=nn.Linear(10, 7, bias=False),
        head=nn.Linear(8, 5, bias=False),
    )
    space = cafenet.trace(model, IMAGE)
    assert sizes(space) == {"conv": (8, 1), "tokens": (10, 1), "back": (7, 1)}
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(1, high, size=20_000, endpoint=True) for high in (8, 10, 7)], 1)
    c, t, b = rows.T
    assert (space.flops(rows) == 64 * 3 * c + c * 64 * t + c * t * b + 5 * c).all()
    assert (space.params(rows) == 3 * c + 64 * t + t * b + 5 * c).all()
    # one more channel at full width, the derivatives of the same polynomial
    assert [group.sensitivity for group in space.groups] == [192 + 640 + 70 + 5, 8 * 64 + 8 * 7, 8 * 10]


def test_counts_beyond_float32_are_exact():
    model = nn.Sequential(nn.Conv2d(1, 999, 3, padding=1, bias=False), nn.Conv2d(999, 997, 3, padding=1, bias=False))
    model.append(nn.Conv2d(997, 3, 1, bias=False))
    with torch.device("meta"):
        x = torch.zeros(7, 1, 101, 103)
    space = cafenet.trace(model.to("meta"), x)
    places = 7 * 101 * 103
    for a, b in ((999, 997), (998, 995), (1, 1)):
        assert space.flops([a, b]) == places * (9 * a + 9 * a * b + 3 * b)


def test_sensitivity_is_the_cost_of_one_channel(space: cafenet.WidthSpace):
    first, second = space.groups
    # a channel of the first layer: its filter at 64 places, and 12/2 weights that read it there
    assert first.sensitivity == 64 * 27 + 64 * 6 == (flops(8, 12) - flops(6, 12)) / 2
    assert second.sensitivity == 64 * 4 + 5 == (flops(8, 12) - flops(8, 10)) / 2


def test_sensitivity_where_a_width_meets_itself():
    """In a square layer a channel is a row and a column: the derivative counts both."""
    conv = nn.Conv2d(8, 8, 1, bias=False)
    model = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), conv, conv, nn.Conv2d(8, 5, 1, bias=False))
    (group,) = cafenet.trace(model, IMAGE).groups
    assert group.sensitivity == 64 * (3 + 2 * (8 + 8) + 5)


def test_shares(space: cafenet.WidthSpace):
    """The first group takes part in both convolutions, the second in the second and the head."""
    total = flops(8, 12)
    assert space.flops_share("first") == (13_824 + 3_072) / total
    assert space.flops_share("second") == (3_072 + 60) / total
    assert space.searchable_flops_share == 1.0
    frozen = cafenet.trace(Small(), IMAGE, freeze="first")
    assert frozen.searchable_flops_share == (3_072 + 60) / total


def test_slots(space: cafenet.WidthSpace):
    found = {(slot.tensor, slot.dim): slot.positions.tolist() for slot in space.group("second").slots}
    everything = list(range(12))
    assert found == {("second.weight", 0): everything, ("second.bias", 0): everything, ("head.weight", 1): everything}
    found = {(slot.tensor, slot.dim): slot.positions.tolist() for slot in space.group("first").slots}
    assert found[("second.weight", 1)] == [0, 1, 2, 3]  # a grouped convolution's weight lists one group's inputs
    assert found[("norm.running_mean", 0)] == list(range(8))


@pytest.mark.parametrize(
    ("min_width", "expected"), [(1, [2, 2]), (3, [4, 4]), (10, [8, 10]), (0.25, [2, 4]), (0.5, [4, 6]), (1.0, [8, 12])]
)
def test_smallest_widths(min_width: int | float, expected: list[int]):
    """In whole units of 2 channels, rounded up, and never more than there are."""
    space = cafenet.trace(Small(), IMAGE, min_width=min_width)
    assert list(space.min_widths.values()) == expected
    assert space.flops(space.min_widths) == flops(*expected)
    with pytest.raises(WidthError, match=f"from {expected[0]} to 8"):
        space.flops([expected[0] - 2, 12])


def test_names_of_two_groups_in_one_layer():
    """Half of a layer's channels goes with another layer, so each half has its own width."""
    model = Forward(
        lambda net, x: net.head(pooled(net.wide(x) + torch.cat([net.some(x), net.rest(x)], 1))),
        wide=nn.Conv2d(3, 8, 1),
        some=nn.Conv2d(3, 3, 1),
        rest=nn.Conv2d(3, 5, 1),
        head=nn.Linear(8, 5),
    )
    space = cafenet.trace(model, IMAGE)
    assert sizes(space) == {"wide": (3, 1), "wide@3": (5, 1)}
    assert cafenet.verify(space, IMAGE).ok


@pytest.mark.parametrize(
    ("name", "num_groups", "flops", "params"),
    [("mobilenet_v2", 25, 300_774_272, 3_504_872), ("resnet50", 37, 4_089_184_256, 25_557_032)],
)
def test_known_networks(name: str, num_groups: int, flops: int, params: int):
    """FLOPs and parameters as published for 224x224 images."""
    with torch.device("meta"):
        model = cafenet.load_model(f"torchvision:{name}")
    space = cafenet.trace(model, torch.zeros(1, 3, 224, 224))
    assert (len(space.groups), space.flops(), space.params()) == (num_groups, flops, params)
