"""Concatenation: one dimension then serves several groups, each at its own positions."""

import torch
from torch import nn

from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, pooled, proven, reasons, sizes, slots


def branches(forward, **layers) -> nn.Module:
    return Forward(forward, a=nn.Conv2d(3, 8, 1, bias=False), b=nn.Conv2d(3, 6, 1, bias=False), **layers)


def test_each_branch_is_a_group_of_its_own():
    model = branches(
        lambda net, x: net.head(pooled(net.norm(torch.cat([net.a(x), net.b(x)], 1)))),
        norm=nn.BatchNorm2d(14),
        head=nn.Linear(14, 5, bias=False),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"a": (8, 1), "b": (6, 1)}
    positions = {slot.tensor: slot.positions.tolist() for slot in space.group("b").slots}
    assert positions["b.weight"] == list(range(6))
    assert positions["norm.running_var"] == positions["head.weight"] == list(range(8, 14))
    # 64 places: 3*8 + 3*6, head 14*5
    assert space.flops() == 64 * 42 + 70
    assert space.flops({"a": 3, "b": 2}) == 64 * 15 + 25
    slim = space.extract({"a": 3, "b": 2})
    assert (slim.norm.num_features, slim.head.in_features) == (5, 5)
    assert slim.head.weight.equal(model.head.weight[:, [0, 1, 2, 8, 9]])


def test_what_comes_from_the_image_stays():
    model = Forward(
        lambda net, x: net.head(pooled(net.mix(torch.cat([x, net.a(x)], 1)))),
        a=nn.Conv2d(3, 8, 1),
        mix=nn.Conv2d(11, 6, 1),
        head=nn.Linear(6, 5),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"a": (8, 1), "mix": (6, 1)}
    assert space.extract({"a": 2}).mix.weight.equal(model.mix.weight[:, [0, 1, 2, 3, 4]])


def test_the_same_tensor_twice():
    model = branches(
        lambda net, x: net.head(pooled(torch.cat([net.a(x), net.b(x), net.a(x)], 1))), head=nn.Linear(22, 5, bias=False)
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"a": (8, 1), "b": (6, 1)}
    slim = space.extract(channels={"a": [7], "b": [0]})
    assert slim.head.weight.equal(model.head.weight[:, [7, 8, 21]])


def test_dense_block():
    """Every layer reads all earlier ones: three groups, the first with slots in every later layer."""

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 1, bias=False)
            self.one = nn.Conv2d(8, 4, 3, padding=1, bias=False)
            self.two = nn.Conv2d(12, 4, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(16)
            self.head = nn.Linear(16, 5, bias=False)

        def forward(self, x):
            features = [self.stem(x)]
            features.append(self.one(features[0]).relu())
            features.append(self.two(torch.cat(features, 1)).relu())
            return self.head(pooled(self.norm(torch.cat(features, 1))))

    space = proven(Dense(), IMAGE)
    assert sizes(space) == {"stem": (8, 1), "one": (4, 1), "two": (4, 1)}
    # 64 places: 3*8 + 9*8*4 + 9*12*4, head 16*5
    assert space.flops() == 64 * (24 + 288 + 432) + 80
    assert space.flops({"stem": 2, "one": 3, "two": 1}) == 64 * (6 + 9 * 2 * 3 + 9 * 5 * 1) + 6 * 5
    assert {("one.weight", 1), ("two.weight", 1), ("head.weight", 1)} <= slots(space, "stem")


def test_sum_of_two_concatenations():
    """8+6 meets 7+7: channels 0-6, 7, and 8-13 have different partners, so they are groups of their own."""
    model = branches(
        lambda net, x: net.head(pooled(torch.cat([net.a(x), net.b(x)], 1) + torch.cat([net.c(x), net.d(x)], 1))),
        c=nn.Conv2d(3, 7, 1),
        d=nn.Conv2d(3, 7, 1),
        head=nn.Linear(14, 5),
    )
    space = proven(model, TWO_IMAGES)
    assert sizes(space) == {"a": (7, 1), "b": (6, 1)}
    assert slots(space, "a") >= {("a.weight", 0), ("c.weight", 0)}
    assert slots(space, "b") >= {("b.weight", 0), ("d.weight", 0)}
    # a's last channel meets d's first: a unit alone, which is no width to search
    assert reasons(space)["a"] == "all its channels are tied into one unit"


def test_concatenation_of_positions():
    """Along a dimension without channels, the channels are tied."""
    model = branches(
        lambda net, x: net.head(torch.cat([net.a(x).flatten(2), net.c(x).flatten(2)], 2).mean(2)),
        c=nn.Conv2d(3, 8, 3),
        head=nn.Linear(8, 5),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"a": (8, 1)}
    assert ("c.weight", 0) in slots(space, "a")


def test_stacked_branches():
    """`stack` ties the branches; flattening the new dimension interleaves them."""
    for dim, order in ((1, [0, 3, 8, 11]), (2, [0, 1, 6, 7])):
        model = Forward(
            lambda net, x, dim=dim: net.head(pooled(torch.stack([net.a(x), net.c(x)], dim).flatten(1, 2))),
            a=nn.Conv2d(3, 8, 1),
            c=nn.Conv2d(3, 8, 1),
            head=nn.Linear(16, 5),
        )
        space = proven(model, IMAGE)
        assert sizes(space) == {"a": (8, 1)}
        slim = space.extract(channels={"a": [0, 3]})
        assert slim.head.weight.equal(model.head.weight[:, order])
