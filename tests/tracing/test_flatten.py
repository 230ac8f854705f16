"""Flattening: a channel becomes as many inputs of a linear layer as it has places."""

import pytest
import torch
from torch import nn

from cafenet.errors import WidthError
from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, frozen_reason, pooled, proven, reasons, sizes


def flat(forward, features: int = 8 * 36) -> nn.Module:
    """A convolution to 8 channels on 6x6 places, flattened in some way for a linear layer."""
    return Forward(
        lambda net, x: net.head(forward(net.conv(x))), conv=nn.Conv2d(3, 8, 3), head=nn.Linear(features, 5, bias=False)
    )


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x.flatten(1),
        lambda x: torch.flatten(x, 1),
        lambda x: x.view(x.size(0), -1),
        lambda x: x.reshape(x.shape[0], x.shape[1] * x.shape[2] * x.shape[3]),
        lambda x: x.flatten(2).flatten(1),
    ],
)
@pytest.mark.parametrize("x", [IMAGE, TWO_IMAGES], ids=["one image", "two images"])
def test_a_channel_is_36_features(forward, x: torch.Tensor):
    model = flat(forward)
    space = proven(model, x)
    assert sizes(space) == {"conv": (8, 1)}
    # an image: 36 places with 27*8, then 288*5
    assert space.flops() == len(x) * (36 * 216 + 1_440)
    assert space.flops({"conv": 3}) == len(x) * (36 * 81 + 108 * 5)
    slim = space.extract(channels={"conv": [1, 7]})
    assert slim.head.weight.equal(model.head.weight[:, [*range(36, 72), *range(252, 288)]])
    assert slim.head.in_features == 72


def test_space_first():
    """With the channels last, a channel is every eighth feature."""
    model = flat(lambda x: x.permute(0, 2, 3, 1).flatten(1))
    space = proven(model, TWO_IMAGES)
    assert space.extract(channels={"conv": [5]}).head.weight.equal(model.head.weight[:, 5::8])


@pytest.mark.parametrize("x", [IMAGE, TWO_IMAGES], ids=["one image", "two images"])
@pytest.mark.parametrize(
    "forward",
    [lambda x: x.view(-1, 8 * 36), lambda x: x.view(-1, 288), lambda x: x.reshape(x.shape[0], 8, 36).flatten(1)],
)
def test_sizes_in_the_code_freeze(forward, x: torch.Tensor):
    reason = frozen_reason(flat(forward), x, "conv")
    assert reason.startswith("does not let its width vary: ")
    assert f"is invalid for input of size {len(x) * 2 * 36}" in reason  # two of eight channels


def test_a_layer_behind_a_fixed_size_is_still_searched():
    model = Forward(
        lambda net, x: net.head(net.hidden(net.conv(x).view(-1, 288)).relu()),
        conv=nn.Conv2d(3, 8, 3),
        hidden=nn.Linear(288, 10),
        head=nn.Linear(10, 5),
    )
    space = proven(model, TWO_IMAGES)
    assert sizes(space) == {"hidden": (10, 1)}
    assert reasons(space)["conv"].startswith("does not let its width vary: ")


def test_flattened_into_a_hidden_layer():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10), nn.Dropout(), nn.Linear(10, 5)
    )
    space = proven(model, TWO_IMAGES)
    assert sizes(space) == {"0": (8, 1), "3": (10, 1)}
    # an image: 36 places with 27*8, 72*10, 10*5
    assert space.flops() == 2 * (7_776 + 720 + 50)


def test_of_channels_flattened_with_other_channels_one_kind_varies():
    """An outer product of two widths: the wider one may vary, as every channel of it is there four times."""

    def forward(net, x):
        a, b = net.a(x).flatten(2).mean(2), net.b(x).flatten(2).mean(2)
        return net.head((a[:, :, None] * b[:, None, :]).flatten(1))

    model = Forward(forward, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(3, 6, 1), head=nn.Linear(24, 5))
    space = proven(model, IMAGE)
    assert sizes(space) == {"b": (6, 1)}
    assert reasons(space)["a"].startswith("is flattened together with other channels in")
    assert space.extract({"b": 2}).head.in_features == 8


def test_a_channel_times_itself_has_no_width():
    def forward(net, x):
        a = pooled(net.a(x))
        return net.head((a[:, :, None] * a[:, None, :]).flatten(1))

    model = Forward(forward, a=nn.Conv2d(3, 4, 1), head=nn.Linear(16, 5))
    assert frozen_reason(model, IMAGE, "a").startswith("is flattened together with other channels")


def test_splines_of_every_input():
    """A layer of a Kolmogorov-Arnold network: a basis of its own for each input, flattened with the inputs."""

    class Splines(nn.Module):
        def __init__(self, ins: int, outs: int) -> None:
            super().__init__()
            self.register_buffer("grid", torch.linspace(-1, 1, 7).expand(ins, 7).contiguous())
            self.weight = nn.Parameter(torch.randn(outs, ins, 6))

        def forward(self, x):
            x = x.unsqueeze(-1)
            bases = ((x >= self.grid[:, :-1]) & (x < self.grid[:, 1:])).to(x.dtype) * (x - self.grid[:, :-1])
            return nn.functional.linear(bases.view(x.shape[0], -1), self.weight.view(self.weight.shape[0], -1))

    model = nn.Sequential(nn.Linear(3, 10), Splines(10, 8), Splines(8, 5))
    space = proven(model, torch.rand(4, 3))
    assert sizes(space) == {"0": (10, 1), "1": (8, 1)}


def test_a_fixed_dimension_is_none_of_channels():
    """Positions that a table is added to are fixed, so channels may be flattened with them."""

    def forward(net, x):
        x = net.conv(x).flatten(2).mT + net.places
        return net.head(x.flatten(1))

    places = nn.Parameter(torch.randn(1, 64, 8))
    model = Forward(forward, conv=nn.Conv2d(3, 8, 1), places=places, head=nn.Linear(512, 5))
    assert sizes(proven(model, IMAGE)) == {"conv": (8, 1)}


def test_channels_flattened_with_the_batch_come_back():
    model = flat(lambda x: x.flatten(0, 1).relu().unflatten(0, (x.shape[0], -1)).flatten(1))
    assert sizes(proven(model, TWO_IMAGES)) == {"conv": (8, 1)}


@pytest.mark.parametrize("x", [IMAGE, TWO_IMAGES], ids=["one image", "two images"])
def test_squeeze_needs_two_channels(x: torch.Tensor):
    """`squeeze()` would take a single channel for a dimension without meaning."""
    model = flat(lambda x: x.mean((2, 3), keepdim=True).squeeze(), features=8)
    space = proven(model, x)
    assert space.group("conv").min_width == 2
    with pytest.raises(WidthError, match="from 2 to 8, but got 1"):
        space.run(x, {"conv": 1})


def test_squeeze_of_places_only():
    model = flat(lambda x: x.mean((2, 3), keepdim=True).squeeze(3).squeeze(-1), features=8)
    space = proven(model, TWO_IMAGES)
    assert space.group("conv").min_width == 1
    assert space.run(TWO_IMAGES, {"conv": 1}).shape == (2, 5)
