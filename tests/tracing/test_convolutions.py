"""Convolutions of every rank and kind, and their costs by hand."""

import pytest
import torch
from torch import nn

from tests.helpers.networks import IMAGE, Forward, frozen_reason, pooled, proven, sizes


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_plain_convolutions(rank: int):
    conv, norm = (
        (nn.Conv1d, nn.BatchNorm1d),
        (nn.Conv2d, nn.BatchNorm2d),
        (nn.Conv3d, nn.BatchNorm3d),
    )[rank - 1]
    pool = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[rank - 1]
    model = nn.Sequential(
        conv(2, 8, 3, padding=1), norm(8), nn.ReLU(), pool(2), conv(8, 6, 3, stride=2, padding=1), conv(6, 5, 1)
    )
    space = proven(model, torch.zeros(2, 2, *[8] * rank))
    assert sizes(space) == {"0": (8, 1), "4": (6, 1)}
    # a batch of 2: 8^r places with 3^r*2*8, then 4^r pooled and 2^r left by the stride: 3^r*8*6 and 6*5
    assert space.flops() == 2 * (8**rank * 3**rank * 16 + 2**rank * (3**rank * 48 + 30))
    assert space.flops([3, 2]) == 2 * (8**rank * 3**rank * 6 + 2**rank * (3**rank * 6 + 10))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolutions(rank: int):
    """Multiply-adds are counted at the places of the input."""
    up = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[rank - 1]
    model = nn.Sequential(
        up(2, 8, 2, stride=2), nn.ReLU(), up(8, 6, 3, padding=1, output_padding=1, stride=2), up(6, 5, 1)
    )
    space = proven(model, torch.zeros(1, 2, *[2] * rank))
    assert sizes(space) == {"0": (8, 1), "2": (6, 1)}
    assert space.flops() == 2**rank * 2**rank * 16 + 4**rank * 3**rank * 48 + 8**rank * 30
    slim = space.extract({"0": 3, "2": 2})
    assert (slim[2].in_channels, slim[2].out_channels, slim[2].weight.shape[:2]) == (3, 2, (3, 2))


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate"])
def test_padding_modes(mode: str):
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 6, 3, padding=1, padding_mode=mode), nn.Conv2d(6, 5, 1))
    assert sizes(proven(model, IMAGE)) == {"0": (8, 1), "1": (6, 1)}


def test_circular_padding_is_frozen_or_right():
    """It is written by copies into a fresh tensor, which no rule follows."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.Conv2d(8, 6, 3, padding=1, padding_mode="circular"), nn.Conv2d(6, 5, 1)
    )
    assert sizes(proven(model, IMAGE)) == {"1": (6, 1)}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_dilation_stride_and_even_kernels():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, dilation=2, padding="same"),
        nn.Conv2d(8, 6, 2, padding="same"),
        nn.Conv2d(6, 7, (1, 3), stride=(2, 1)),
        nn.Conv2d(7, 5, 1),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"0": (8, 1), "1": (6, 1), "2": (7, 1)}
    # 64 places with 27*8 and 4*8*6; then 4x6 places with 3*6*7 and 7*5
    assert space.flops() == 64 * (216 + 192) + 24 * (126 + 35)


def test_image_without_a_batch():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 5, 1))
    space = proven(model, torch.zeros(3, 8, 8))
    assert space.flops() == 64 * (24 + 40)


def test_functional_convolution():
    """A module of the user's own: `groups` comes from the data, so that it follows the width by itself."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(8, 3, 3, 3))
            self.each = nn.Parameter(torch.randn(8, 1, 3, 3))
            self.head = nn.Linear(8, 5)

        def forward(self, x):
            x = nn.functional.conv2d(x, self.kernel)
            return self.head(pooled(nn.functional.conv2d(x, self.each, groups=x.shape[1])))

    space = proven(Own(), IMAGE)
    assert sizes(space) == {"kernel": (8, 1)}
    assert space.extract({"kernel": 3}).each.shape == (3, 1, 3, 3)


def test_functional_depthwise_with_fixed_groups_freezes():
    model = Forward(
        lambda net, x: net.head(pooled(nn.functional.conv2d(net.conv(x), net.each, groups=8))),
        conv=nn.Conv2d(3, 8, 1),
        each=nn.Parameter(torch.randn(8, 1, 3, 3)),
        head=nn.Linear(8, 5),
    )
    assert frozen_reason(model, IMAGE, "conv").startswith("does not let its width vary")


def test_convolution_over_channels_freezes():
    """ECA's gate slides over the channels as if they were places."""

    def forward(net, x):
        x = net.conv(x)
        gate = net.slide(pooled(x)[:, None]).sigmoid()
        return net.head(pooled(x * gate.transpose(1, 2)[..., None]))

    model = Forward(forward, conv=nn.Conv2d(3, 8, 1), slide=nn.Conv1d(1, 1, 3, padding=1), head=nn.Linear(8, 5))
    assert frozen_reason(model, IMAGE, "conv") == "is convolved over (in slide)"
