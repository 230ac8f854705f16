"""Encoders and decoders: pooling, upsampling, transposed convolutions and skips by concatenation."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.helpers.networks import IMAGE, Forward, proven, sizes, slots


def double(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = double(3, 4), double(4, 6), double(6, 8)
        self.up2, self.merge2 = nn.ConvTranspose2d(8, 6, 2, stride=2), double(12, 6)
        self.up1, self.merge1 = nn.ConvTranspose2d(6, 4, 2, stride=2), double(8, 4)
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(functional.max_pool2d(one, 2))
        x = self.bottom(functional.max_pool2d(two, 2))
        x = self.merge2(torch.cat([two, self.up2(x)], 1))
        x = self.merge1(torch.cat([one, self.up1(x)], 1))
        return self.head(x)


def test_unet():
    space = proven(UNet(), IMAGE)
    names = [f"{block}.{layer}" for block in ("down1", "down2", "bottom") for layer in (0, 3)]
    names += ["up2", "merge2.0", "merge2.3", "up1", "merge1.0", "merge1.3"]
    assert list(sizes(space)) == names
    assert {("merge2.0.weight", 1), ("down2.3.weight", 0)} <= slots(space, "down2.3")
    # 64, 16 and 4 places going down; coming up, transposed convolutions count at their input's 4 and 16
    down = 64 * 9 * (12 + 16) + 16 * 9 * (24 + 36) + 4 * 9 * (48 + 64)
    up = 4 * 4 * 48 + 16 * 9 * (72 + 36) + 16 * 4 * 24 + 64 * 9 * (32 + 16)
    assert space.flops() == down + up + 64 * 8
    slim = space.extract(space.min_widths)
    assert slim.merge1[0].in_channels == 2
    assert slim(IMAGE).shape == (1, 2, 8, 8)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
def test_resampling(mode: str):
    model = Forward(
        lambda net, x: net.head(functional.interpolate(net.conv(x), size=(5, 12), mode=mode)),
        conv=nn.Conv2d(3, 8, 1),
        head=nn.Conv2d(8, 5, 1),
    )
    assert sizes(proven(model, IMAGE)) == {"conv": (8, 1)}


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2),
        nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True),
        nn.AvgPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.AdaptiveAvgPool2d(3),
        nn.AdaptiveMaxPool2d(2),
        nn.LPPool2d(2, 2),
        nn.ReflectionPad2d(1),
        nn.ReplicationPad2d(2),
        nn.ZeroPad2d((1, 2, 0, 1)),
        nn.ConstantPad2d(1, 3.0),
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        nn.Unfold(2),
    ],
    ids=str,
)
def test_pooling_and_padding(pool: nn.Module):
    channels = 32 if isinstance(pool, nn.Unfold) else 8
    head = nn.Conv1d(channels, 5, 1) if isinstance(pool, nn.Unfold) else nn.Conv2d(channels, 5, 1)
    space = proven(nn.Sequential(nn.Conv2d(3, 8, 1), pool, head), IMAGE)
    assert sizes(space) == {"0": (8, 1)}
    assert not space.group("0").mixes


def test_unpooling_by_indices_freezes():
    def forward(net, x):
        x, indices = functional.max_pool2d(net.conv(x), 2, return_indices=True)
        return net.head(functional.max_unpool2d(net.inner(x), indices, 2))

    model = Forward(forward, conv=nn.Conv2d(3, 8, 1), inner=nn.Conv2d(8, 8, 1), head=nn.Conv2d(8, 5, 1))
    model.head = nn.Sequential(nn.Conv2d(8, 6, 1), nn.Conv2d(6, 5, 1))
    assert sizes(proven(model, IMAGE)) == {"head.0": (6, 1)}


def test_attention_gate_on_a_skip():
    """Attention U-Net: the gate has one channel and scales all of the skip."""

    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 1)
            self.deep = nn.Conv2d(8, 6, 3, stride=2, padding=1)
            self.query, self.key, self.score = nn.Conv2d(6, 4, 1), nn.Conv2d(8, 4, 1, stride=2), nn.Conv2d(4, 1, 1)
            self.head = nn.Conv2d(14, 5, 1)

        def forward(self, x):
            skip = self.stem(x)
            deep = self.deep(skip)
            score = self.score((self.query(deep) + self.key(skip)).relu()).sigmoid()
            score, deep = (functional.interpolate(y, scale_factor=2.0) for y in (score, deep))
            return self.head(torch.cat([skip * score, deep], 1))

    assert sizes(proven(Gate(), IMAGE)) == {"stem": (8, 1), "deep": (6, 1), "query": (4, 1)}
