"""Depthwise convolutions: every channel keeps its identity, and `groups` follows the width."""

import pytest
from torch import nn

from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, pooled, proven, reasons, sizes, slots


def separable(channels: int, multiplier: int) -> nn.Module:
    return Forward(
        lambda net, x: net.head(pooled(net.depthwise(net.stem(x).relu()))),
        stem=nn.Conv2d(3, channels, 3, padding=1, bias=False),
        depthwise=nn.Conv2d(channels, channels * multiplier, 3, padding=1, groups=channels),
        head=nn.Linear(channels * multiplier, 5),
    )


@pytest.mark.parametrize("multiplier", [1, 2, 3])
def test_depthwise_joins_its_input(multiplier: int):
    space = proven(separable(8, multiplier), IMAGE)
    assert sizes(space) == {"stem": (8, 1)}
    assert reasons(space) == {"head": "is an output of the model"}
    assert slots(space, "stem") == {
        ("stem.weight", 0),
        ("depthwise.weight", 0),
        ("depthwise.bias", 0),
        ("head.weight", 1),
    }
    # stem 64*27*8, depthwise 64*9 for each of its outputs, head 5 for each
    assert space.flops() == 13_824 + 8 * multiplier * (576 + 5)
    assert space.flops({"stem": 3}) == 64 * 27 * 3 + 3 * multiplier * 581
    assert space.group("stem").sensitivity == 1_728 + multiplier * 581


@pytest.mark.parametrize("multiplier", [1, 2, 3])
def test_a_channel_keeps_its_own_filters(multiplier: int):
    space = proven(separable(8, multiplier), IMAGE)
    slim = space.extract(channels={"stem": [1, 6]})
    layer = slim.depthwise
    assert (layer.in_channels, layer.out_channels, layer.groups) == (2, 2 * multiplier, 2)
    filters = [channel * multiplier + k for channel in (1, 6) for k in range(multiplier)]
    assert layer.weight.equal(space.model.depthwise.weight[filters])
    assert layer.bias.equal(space.model.depthwise.bias[filters])


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("kind", [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d])
def test_transposed_depthwise(kind: type[nn.Module], multiplier: int):
    model = Forward(
        lambda net, x: net.head(pooled(net.up(net.stem(x).relu()))),
        stem=kind(3, 6, 1),
        up=kind(6, 6 * multiplier, 2, stride=2, groups=6),
        head=nn.Linear(6 * multiplier, 5),
    )
    rank = int(kind.__name__[-2])
    x = TWO_IMAGES.new_zeros(2, 3, *[4] * rank)
    space = proven(model, x)
    assert sizes(space) == {"stem": (6, 1)}
    # a batch of 2 and 4**rank places: stem 3*6, up 2**rank for each output; then the head
    assert space.flops() == 2 * (4**rank * (18 + 2**rank * 6 * multiplier) + 6 * multiplier * 5)
    slim = space.extract(channels={"stem": [0, 2, 5]})
    assert (slim.up.in_channels, slim.up.out_channels, slim.up.groups) == (3, 3 * multiplier, 3)
    assert slim.up.weight.equal(model.up.weight[[0, 2, 5]])


def test_inverted_residual():
    """MobileNetV2's block: the expanded width is one group, the residual stream another."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 4, 1, bias=False)
            self.expand = nn.Conv2d(4, 12, 1, bias=False)
            self.depthwise = nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False)
            self.norm = nn.BatchNorm2d(12)
            self.project = nn.Conv2d(12, 4, 1, bias=False)
            self.head = nn.Linear(4, 5)

        def forward(self, x):
            x = self.stem(x)
            inner = nn.functional.relu6(self.norm(self.depthwise(nn.functional.relu6(self.expand(x)))))
            return self.head(pooled(x + self.project(inner)))

    space = proven(Block(), IMAGE)
    assert sizes(space) == {"stem": (4, 1), "expand": (12, 1)}
    # 64 places: 3*4 + 4*12 + 9*12 + 12*4, then 4*5
    assert space.flops() == 64 * (12 + 48 + 108 + 48) + 20
    slim = space.extract({"stem": 2, "expand": 7})
    assert (slim.depthwise.groups, slim.norm.num_features) == (7, 7)


def test_depthwise_on_the_image_stays():
    model = Forward(
        lambda net, x: net.head(pooled(net.mix(net.depthwise(x)))),
        depthwise=nn.Conv2d(3, 6, 3, groups=3),
        mix=nn.Conv2d(6, 8, 1),
        head=nn.Linear(8, 5),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"mix": (8, 1)}
    assert space.extract({"mix": 2}).depthwise.weight.shape == (6, 1, 3, 3)


def test_channels_as_a_batch():
    """The same 3x3 filter for every channel, by moving the channels into the batch: its cost follows the width."""

    def forward(net, x):
        x = net.stem(x)
        blurred = net.blur(x.reshape(-1, 1, 8, 8)).reshape(x.shape[0], -1, 6, 6)
        return net.head(pooled(blurred))

    model = Forward(forward, stem=nn.Conv2d(3, 8, 1), blur=nn.Conv2d(1, 1, 3), head=nn.Linear(8, 5))
    space = proven(model, TWO_IMAGES)
    assert sizes(space) == {"stem": (8, 1)}
    # two images: stem 64*3 a channel, blur 36*9 a channel, head 5 a channel
    assert space.flops() == 2 * 8 * (192 + 324 + 5)
    assert space.flops({"stem": 3}) == 2 * 3 * 521
