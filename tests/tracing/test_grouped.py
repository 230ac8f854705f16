"""Grouped convolutions: the number of groups stays, so the i-th channels of all groups go together."""

import pytest
import torch
from torch import nn

from cafenet.errors import WidthError
from tests.helpers.networks import IMAGE, Forward, pooled, proven, reasons, sizes

RANKS = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3, nn.ConvTranspose1d: 1, nn.ConvTranspose2d: 2, nn.ConvTranspose3d: 3}
TRANSPOSED = [kind for kind in RANKS if "Transpose" in kind.__name__]
ORDINARY = [kind for kind in RANKS if kind not in TRANSPOSED]


def grouped(kind: type[nn.Module], channels: int, outputs: int, groups: int) -> tuple[nn.Module, torch.Tensor]:
    model = Forward(
        lambda net, x: net.head(pooled(net.grouped(net.stem(x).relu()))),
        stem=kind(3, channels, 1, bias=False),
        grouped=kind(channels, outputs, 3, padding=1, groups=groups),
        head=nn.Linear(outputs, 5, bias=False),
    )
    return model, torch.zeros(2, 3, *[4] * RANKS[kind])


@pytest.mark.parametrize("kind", ORDINARY)
@pytest.mark.parametrize(("channels", "outputs", "groups"), [(8, 8, 2), (8, 12, 4), (6, 9, 3)])
def test_divisor_is_the_number_of_groups(kind: type[nn.Module], channels: int, outputs: int, groups: int):
    model, x = grouped(kind, channels, outputs, groups)
    space = proven(model, x)
    assert sizes(space) == {"stem": (channels, groups), "grouped": (outputs, groups)}
    places, area = 2 * 4 ** RANKS[kind], 3 ** RANKS[kind]
    assert space.flops() == places * (3 * channels + area * channels * outputs // groups) + 2 * outputs * 5
    halved = {"stem": groups, "grouped": groups}  # one channel a group
    assert space.flops(halved) == places * (3 * groups + area * groups) + 2 * groups * 5
    slim = space.extract(halved)
    assert (slim.grouped.in_channels, slim.grouped.out_channels, slim.grouped.groups) == (groups, groups, groups)
    assert slim.grouped.weight.shape[:2] == (groups, 1)


@pytest.mark.parametrize("kind", TRANSPOSED)
@pytest.mark.parametrize(("channels", "outputs", "groups"), [(8, 8, 2), (8, 12, 4)])
def test_transposed(kind: type[nn.Module], channels: int, outputs: int, groups: int):
    """The weight of a transposed convolution is (in, out / groups): its second dimension lists one group's outputs."""
    model, x = grouped(kind, channels, outputs, groups)
    space = proven(model, x)
    assert sizes(space) == {"stem": (channels, groups), "grouped": (outputs, groups)}
    assert space.group("grouped").unit_of_channel.tolist() == list(range(outputs // groups)) * groups
    places, area = 2 * 4 ** RANKS[kind], 3 ** RANKS[kind]
    assert space.flops() == places * (3 * channels + area * channels * outputs // groups) + 2 * outputs * 5
    slim = space.extract(space.min_widths)
    assert (slim.grouped.in_channels, slim.grouped.out_channels, slim.grouped.groups) == (groups, groups, groups)
    assert (slim.grouped.weight.shape[:2], slim.grouped.bias.shape) == ((groups, 1), (groups,))


def test_the_ith_channels_of_all_groups_go_together():
    model, x = grouped(nn.Conv2d, 8, 8, 2)
    space = proven(model, x)
    assert space.group("stem").unit_of_channel.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    slim = space.extract({"stem": 6})
    assert slim.stem.weight.equal(model.stem.weight[[0, 1, 2, 4, 5, 6]])
    assert slim.grouped.weight.equal(model.grouped.weight[:, [0, 1, 2]])


def test_widths_between_whole_units_are_refused():
    model, x = grouped(nn.Conv2d, 8, 8, 2)
    space = proven(model, x)
    with pytest.raises(WidthError, match=r"'stem' takes widths from 2 to 8 in multiples of 2, but got 5"):
        space.flops({"stem": 5})
    with pytest.raises(WidthError, match=r"channels \[1, 5\] of group 'stem' go together"):
        space.extract(channels={"stem": [0, 1, 4]})


def test_one_channel_a_group_cannot_be_searched():
    model, x = grouped(nn.Conv2d, 8, 4, 4)
    space = proven(model, x)
    assert sizes(space) == {"stem": (8, 4)}
    assert reasons(space)["grouped"] == "all its channels are tied into one unit"


def test_resnext_block():
    """Groups inside a bottleneck with a residual connection around it."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 1)
            self.reduce = nn.Conv2d(8, 12, 1)
            self.grouped = nn.Conv2d(12, 12, 3, padding=1, groups=3)
            self.norm = nn.BatchNorm2d(12)
            self.expand = nn.Conv2d(12, 8, 1)
            self.head = nn.Linear(8, 5)

        def forward(self, x):
            x = self.stem(x)
            return self.head(pooled(x + self.expand(self.norm(self.grouped(self.reduce(x).relu())).relu())))

    space = proven(Block(), IMAGE)
    assert sizes(space) == {"stem": (8, 1), "reduce": (12, 3), "grouped": (12, 3)}


def test_two_grouped_convolutions_with_different_groups():
    """6 inputs in 2 groups tie 0-3, 1-4, 2-5; in 3 groups 0-2-4 and 1-3-5: together all are one unit."""
    model = Forward(
        lambda net, x: net.head(pooled(net.two(net.stem(x)) + net.three(net.stem(x)))),
        stem=nn.Conv2d(3, 6, 1),
        two=nn.Conv2d(6, 4, 1, groups=2),
        three=nn.Conv2d(6, 12, 1, groups=3),
        head=nn.Linear(4, 5),
    )
    model.three = nn.Sequential(model.three, nn.Conv2d(12, 4, 1))
    space = proven(model, IMAGE)
    assert sizes(space) == {"two": (4, 2), "three.0": (12, 3)}
    assert reasons(space)["stem"] == "all its channels are tied into one unit"
