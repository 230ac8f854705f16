"""Cutting channels into parts: parts stay equal, and sizes that are written into the code freeze."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, frozen_reason, pooled, proven, reasons, sizes


def cut(forward, channels: int = 8, out: int = 8) -> nn.Module:
    return Forward(
        lambda net, x: net.head(pooled(forward(net.conv(x)))), conv=nn.Conv2d(3, channels, 1), head=nn.Linear(out, 5)
    )


def test_chunk_ties_the_ith_channels():
    def forward(x):
        left, right = x.chunk(2, 1)
        return left * right.sigmoid()

    model = cut(forward, out=4)
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 2)}
    assert space.group("conv").unit_of_channel.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    slim = space.extract({"conv": 4})
    assert slim.conv.weight.equal(model.conv.weight[[0, 1, 4, 5]])
    assert slim.head.weight.equal(model.head.weight[:, :2])
    # 64 places with 3*8, then 4*5; one channel of the convolution causes 64*3 and half a row of the head
    assert space.flops() == 64 * 24 + 20
    assert space.flops({"conv": 6}) == 64 * 18 + 15
    assert space.group("conv").sensitivity == 64 * 3 + 5 / 2


def test_chunk_and_concatenation():
    """One half is worked on, the other passes: the head reads them in the other order."""

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 1)
            self.work = nn.Conv2d(4, 6, 1)
            self.head = nn.Linear(10, 5)

        def forward(self, x):
            left, right = self.conv(x).chunk(2, 1)
            return self.head(pooled(torch.cat([self.work(right), left], 1)))

    space = proven(Half(), IMAGE)
    assert sizes(space) == {"conv": (8, 2), "work": (6, 1)}
    slim = space.extract({"conv": 6, "work": 2})
    assert (slim.work.in_channels, slim.head.in_features) == (3, 5)
    assert slim.head.weight.equal(space.model.head.weight[:, [0, 1, 6, 7, 8]])


@pytest.mark.parametrize("parts", [2, 4])
def test_equal_parts(parts: int):
    ways = (
        lambda x: torch.stack(x.chunk(parts, 1)).sum(0),
        lambda x: sum(x.split(x.shape[1] // parts, 1)),
        lambda x: sum(x.tensor_split(parts, 1)),
        lambda x: sum(x.unflatten(1, (parts, -1)).unbind(1)),
    )
    for forward in ways:
        assert sizes(proven(cut(forward, channels=24, out=24 // parts), TWO_IMAGES)) == {"conv": (24, parts)}


def test_unequal_parts_in_a_fixed_ratio():
    """A quarter and the rest: four units of two channels, one of them in the first part."""

    def forward(x):
        small = x.shape[1] // 4
        first, rest = x.split([small, x.shape[1] - small], 1)
        return torch.cat([rest.relu(), first], 1)

    space = proven(cut(forward), IMAGE)
    assert sizes(space) == {"conv": (8, 4)}
    assert space.group("conv").unit_of_channel.tolist() == [0, 1] * 4


def test_slices():
    def forward(x):
        half = x.shape[1] // 2
        return torch.cat([x[:, half:].relu(), x[:, :half]], 1)

    assert sizes(proven(cut(forward), IMAGE)) == {"conv": (8, 2)}


def test_slice_from_the_end():
    space = proven(cut(lambda x: x[:, -(x.shape[1] // 2) :], out=4), IMAGE)
    assert sizes(space) == {"conv": (8, 2)}


def test_strided_slices():
    """Every second channel: neighbours go together, so that the even ones stay even."""
    space = proven(cut(lambda x: x[:, ::2] * x[:, 1::2].sigmoid(), out=4), IMAGE)
    assert sizes(space) == {"conv": (8, 2)}
    assert space.group("conv").unit_of_channel.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert space.extract({"conv": 4}).head.in_features == 2
    assert sizes(proven(cut(lambda x: x[:, 2::4], out=2), IMAGE)) == {"conv": (8, 4)}


def test_gated_linear_unit():
    space = proven(cut(lambda x: functional.glu(x, 1), out=4), IMAGE)
    assert sizes(space) == {"conv": (8, 2)}
    assert space.extract({"conv": 2}).head.in_features == 1


def test_whole_slice_changes_nothing():
    assert sizes(proven(cut(lambda x: x[:, :, 1:-1, ::2][:, :]), IMAGE)) == {"conv": (8, 1)}


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: sum(x.split(4, 1)),
        lambda x: sum(x.split([4, 4], 1)),
        lambda x: x[:, :4] * x[:, 4:],
        lambda x: x.narrow(1, 0, 4) + x.narrow(1, 4, 4),
        lambda x: x.unflatten(1, (2, 4)).sum(1),
    ],
    ids=["split(4)", "split([4, 4])", "slices", "narrow", "unflatten"],
)
def test_sizes_in_the_code_freeze(forward):
    """16 would also be two times 4 at full width only: the check run finds out."""
    reason = frozen_reason(cut(forward, out=4), IMAGE, "conv")
    assert reason.startswith("does not let its width vary: ")


def test_only_the_layer_with_the_fixed_size_freezes():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before = nn.Conv2d(3, 6, 1)
            self.cut = nn.Conv2d(6, 32, 1)
            self.after = nn.Conv2d(16, 10, 1)
            self.head = nn.Linear(10, 5)

        def forward(self, x):
            left, right = self.cut(self.before(x)).split(16, 1)
            return self.head(pooled(self.after(left * right)))

    space = proven(Net(), IMAGE)
    assert sizes(space) == {"before": (6, 1), "after": (10, 1)}
    assert reasons(space)["cut"].startswith("does not let its width vary: ")


def test_single_channels_by_number_freeze():
    assert frozen_reason(cut(lambda x: x[:, 0:1] + x), IMAGE, "conv") == "all its channels are tied into one unit"
    assert frozen_reason(cut(lambda x: x[:, 3][:, None] + x), IMAGE, "conv") == "is indexed by position in select"
    assert frozen_reason(cut(lambda x: x[:, ::3], out=3), IMAGE, "conv") == "is indexed by position in slice"
    assert frozen_reason(cut(lambda x: x[:, torch.arange(7, -1, -1)]), IMAGE, "conv") == "is indexed by a tensor"
    assert frozen_reason(cut(lambda x: x.roll(1, 1)), IMAGE, "conv") == "is shifted by position in roll"


def test_parts_of_unequal_size_cannot_stay_so():
    """7 channels in chunks of 4 and 3 have no common unit but one channel."""
    model = cut(lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), channels=7, out=7)
    assert frozen_reason(model, IMAGE, "conv") == "all its channels are tied into one unit"


def test_reversed_channels():
    """Channel i meets channel 7-i: four units of two."""
    space = proven(cut(lambda x: x + x.flip(1)), IMAGE)
    assert sizes(space) == {"conv": (8, 2)}
    assert space.group("conv").unit_of_channel.tolist() == [0, 1, 2, 3, 3, 2, 1, 0]


def test_repeated_channels():
    assert sizes(proven(cut(lambda x: x.repeat(1, 2, 1, 1), out=16), IMAGE)) == {"conv": (8, 1)}
    model = cut(lambda x: x.repeat_interleave(2, dim=1), out=16)
    space = proven(model, TWO_IMAGES)
    assert sizes(space) == {"conv": (8, 1)}
    slim = space.extract(channels={"conv": [3]})
    assert slim.head.weight.equal(model.head.weight[:, [6, 7]])


def test_maxout():
    """The larger of two neighbours: channels 2i and 2i+1 go together."""

    def forward(x):
        return x.view(x.shape[0], -1, 2, *x.shape[2:]).max(2).values

    space = proven(cut(forward, out=4), IMAGE)
    assert space.group("conv").unit_of_channel.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
