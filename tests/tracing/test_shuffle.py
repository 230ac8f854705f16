"""Shuffles: moving channels about, or between channels and space."""

import torch
from torch import nn

from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, pooled, proven, sizes, slots


def shuffle(x: torch.Tensor, groups: int) -> torch.Tensor:
    """ShuffleNet's: (groups, C / groups) is transposed."""
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)


def net(forward, channels: int = 8, out: int = 8, **layers) -> Forward:
    return Forward(
        lambda net, x: net.head(pooled(forward(net, net.conv(x)))),
        conv=nn.Conv2d(3, channels, 1),
        head=nn.Linear(out, 5),
        **layers,
    )


def test_view_and_transpose():
    model = net(lambda net, x: shuffle(x, 2))
    for x in (IMAGE, TWO_IMAGES):
        space = proven(model, x)
        assert sizes(space) == {"conv": (8, 2)}
    # 0..7 come out as 0 4 1 5 2 6 3 7: the first three units are 0 4, 1 5, 2 6
    assert space.group("conv").unit_of_channel.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    slim = space.extract({"conv": 6})
    assert slim.conv.weight.equal(model.conv.weight[[0, 1, 2, 4, 5, 6]])
    assert slim.head.weight.equal(model.head.weight[:, :6])


def test_channel_shuffle_layer():
    model = net(lambda net, x: net.shuffle(x), shuffle=nn.ChannelShuffle(2))
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 2)}
    slim = space.extract(channels={"conv": [1, 3, 5, 7]})
    assert slim.head.weight.equal(model.head.weight[:, [2, 3, 6, 7]])


def test_grouped_convolutions_around_a_shuffle():
    model = net(
        lambda net, x: net.second(shuffle(net.first(x), 2)),
        out=4,
        first=nn.Conv2d(8, 12, 1, groups=2),
        second=nn.Conv2d(12, 4, 1, groups=2),
    )
    space = proven(model, IMAGE)
    # after the shuffle 0 6 1 7 2 8 | 3 9 4 10 5 11: the i-th channels of both halves tie 0-3, 1-4, 2-5 as well
    assert sizes(space) == {"conv": (8, 2), "first": (12, 4), "second": (4, 2)}


def test_shuffle_unit():
    """ShuffleNetV2: half of the channels pass, the other half is worked on, then both are shuffled."""

    class Unit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 1)
            self.work = nn.Conv2d(4, 4, 3, padding=1, groups=4)
            self.mix = nn.Conv2d(4, 4, 1)
            self.head = nn.Linear(8, 5)

        def forward(self, x):
            passed, worked = self.stem(x).chunk(2, 1)
            return self.head(pooled(shuffle(torch.cat([passed, self.mix(self.work(worked))], 1), 2)))

    space = proven(Unit(), IMAGE)
    assert sizes(space) == {"stem": (8, 2)}
    assert {("work.weight", 0), ("mix.weight", 0), ("mix.weight", 1)} <= slots(space, "stem")
    assert space.extract({"stem": 4}).work.groups == 2


def test_pixel_shuffle():
    """8 channels become 2 of twice the height and width: four neighbours go together."""
    model = net(lambda net, x: net.up(x), out=2, up=nn.PixelShuffle(2))
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 4)}
    assert space.group("conv").unit_of_channel.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert space.extract({"conv": 4}).head.in_features == 1


def test_pixel_unshuffle():
    model = net(lambda net, x: net.down(x), out=32, down=nn.PixelUnshuffle(2))
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 1)}
    assert space.extract(channels={"conv": [2]}).head.weight.equal(model.head.weight[:, 8:12])


def test_space_to_channels_by_slices():
    """The focus layer of YOLOv5: four shifted copies, one after the other."""

    def focus(net, x):
        return torch.cat([x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1)

    model = net(focus, out=32)
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 1)}
    assert space.extract(channels={"conv": [3]}).head.weight.equal(model.head.weight[:, [3, 11, 19, 27]])


def test_unfolded_patches():
    """`unfold` turns a channel into its 2x2 neighbours."""
    model = Forward(
        lambda net, x: net.head(nn.functional.unfold(net.conv(x), 2, stride=2).mean(2)),
        conv=nn.Conv2d(3, 8, 1),
        head=nn.Linear(32, 5),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 1)}
    assert space.extract(channels={"conv": [2]}).head.weight.equal(model.head.weight[:, 8:12])
