"""Residual connections: what is added has one width."""

import torch
from torch import nn
from torch.nn import functional

from tests.helpers.networks import IMAGE, Forward, frozen_reason, pooled, proven, reasons, sizes, slots


class Residual(nn.Module):
    """A stem of 8 channels and a block with 6 inside: on 8x8 images, 64 places everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.narrow = nn.Conv2d(8, 6, 3, padding=1, bias=False)
        self.widen = nn.Conv2d(6, 8, 3, padding=1, bias=False)
        self.head = nn.Linear(8, 5, bias=False)

    def forward(self, x):
        x = self.norm(self.stem(x))
        return self.head(pooled(functional.relu(x + self.widen(self.narrow(x).relu()))))


def test_both_sides_of_the_addition_are_one_group():
    space = proven(Residual(), IMAGE)
    assert sizes(space) == {"stem": (8, 1), "narrow": (6, 1)}
    assert reasons(space) == {"head": "is an output of the model"}
    statistics = {(f"norm.{name}", 0) for name in ("weight", "bias", "running_mean", "running_var")}
    assert slots(space, "stem") == statistics | {
        ("stem.weight", 0),
        ("narrow.weight", 1),
        ("widen.weight", 0),
        ("head.weight", 1),
    }
    assert slots(space, "narrow") == {("narrow.weight", 0), ("widen.weight", 1)}


def test_costs_by_hand():
    space = proven(Residual(), IMAGE)
    # stem 64*27*8, narrow and widen 64*9*8*6 each, head 8*5
    assert space.flops() == 13_824 + 2 * 27_648 + 40
    # parameters: 27*8, batch norm 2*8, twice 9*8*6, 8*5
    assert space.params() == 216 + 16 + 2 * 432 + 40
    assert space.flops({"stem": 4, "narrow": 3}) == 64 * 27 * 4 + 2 * 64 * 9 * 4 * 3 + 4 * 5
    assert space.params({"stem": 4, "narrow": 3}) == 27 * 4 + 2 * 4 + 2 * 9 * 4 * 3 + 4 * 5
    # one more channel: of the stem 64*27 + 2*64*9*6 + 5, inside the block 2*64*9*8
    assert space.group("stem").sensitivity == 1_728 + 6_912 + 5
    assert space.group("narrow").sensitivity == 9_216


def test_addition_to_the_input_keeps_its_width():
    model = Forward(
        lambda net, x: net.head(pooled(x + net.inner(net.outer(x).relu()))),
        outer=nn.Conv2d(3, 8, 3, padding=1),
        inner=nn.Conv2d(8, 3, 3, padding=1),
        head=nn.Linear(3, 5),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"outer": (8, 1)}
    assert reasons(space)["inner"] == "meets a dimension of fixed size in add"


def test_a_chain_of_blocks_is_one_group_and_a_projection_starts_another():
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 1)
            self.block1 = nn.Conv2d(8, 8, 1)
            self.block2 = nn.Conv2d(8, 8, 1)
            self.block3 = nn.Conv2d(8, 12, 1)
            self.shortcut = nn.Conv2d(8, 12, 1)
            self.head = nn.Linear(12, 5)

        def forward(self, x):
            x = self.stem(x)
            x = x + self.block1(x).relu()
            x = x + self.block2(x).relu()
            return self.head(pooled(self.block3(x).relu() + self.shortcut(x)))

    space = proven(Chain(), IMAGE)
    assert sizes(space) == {"stem": (8, 1), "block3": (12, 1)}
    assert ("shortcut.weight", 0) in slots(space, "block3")
    assert ("shortcut.weight", 1) in slots(space, "stem")


def test_zero_padded_shortcut_keeps_the_padded_channels():
    """ResNet's option A: 8 channels meet the 8 in the middle of 12; the other four have nothing to go with."""
    model = Forward(
        lambda net, x: net.head(pooled(functional.pad(net.a(x), (0, 0, 0, 0, 2, 2)) + net.b(net.a(x)))),
        a=nn.Conv2d(3, 8, 3, padding=1),
        b=nn.Conv2d(8, 12, 3, padding=1),
        head=nn.Linear(12, 5),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"a": (8, 1)}
    (slot,) = [slot for slot in space.group("a").slots if slot.tensor == "b.weight" and slot.dim == 0]
    assert slot.positions.tolist() == list(range(2, 10))
    slim = space.extract({"a": 3})
    assert (slim.b.out_channels, slim.head.in_features) == (7, 7)


def test_shortcut_with_appended_zeros():
    """PyramidNet: the zeros are as many as the channels that the block adds."""

    def forward(net, x):
        x = net.a(x)
        y = net.b(x)
        zeros = torch.zeros(x.shape[0], y.shape[1] - x.shape[1], 8, 8)
        return net.head(pooled(y + torch.cat([x, zeros.to(x)], 1)))

    model = Forward(forward, a=nn.Conv2d(3, 8, 1), b=nn.Conv2d(8, 12, 1), head=nn.Linear(12, 5))
    assert sizes(proven(model, IMAGE)) == {"a": (8, 1)}


def test_added_constant_of_full_size_freezes():
    def forward(net, x):
        return net.head(pooled(net.a(x) + torch.ones(1, 8, 1, 1)))

    model = Forward(forward, a=nn.Conv2d(3, 8, 3), head=nn.Linear(8, 5))
    assert frozen_reason(model, IMAGE, "a").startswith("does not let its width vary: ")
