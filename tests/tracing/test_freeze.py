"""`freeze=`: widths that the user wants to keep."""

import pytest
import torch
from torch import Tensor, nn

import cafenet
from cafenet.errors import TraceError
from tests.helpers.networks import IMAGE, pooled, proven, reasons, sizes


class Stages(nn.Module):
    """A stem, two residual stages of two blocks each, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.stage1 = nn.ModuleList([self.block(8, 6), self.block(8, 6)])
        self.grow = nn.Conv2d(8, 12, 1)
        self.stage2 = nn.ModuleList([self.block(12, 10), self.block(12, 10)])
        self.head = nn.Linear(12, 5)

    @staticmethod
    def block(outer: int, inner: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(outer, inner, 1), nn.ReLU(), nn.Conv2d(inner, outer, 1))

    def forward(self, x):
        x = self.stem(x)
        for block in self.stage1:
            x = x + block(x)
        x = self.grow(x)
        for block in self.stage2:
            x = x + block(x)
        return self.head(pooled(x))


EVERYTHING = {"stem", "stage1.0.0", "stage1.1.0", "grow", "stage2.0.0", "stage2.1.0"}


@pytest.mark.parametrize(
    ("freeze", "gone"),
    [
        ((), set()),
        ("stem", {"stem"}),
        ("stage1", {"stage1.0.0", "stage1.1.0"}),
        ("stage?.0.*", {"stage1.0.0", "stage2.0.0"}),
        (["stem", "stage2.1"], {"stem", "stage2.1.0"}),
        ("stage1.0.2", {"stem"}),
        ("stage1.0.2.weight", {"stem"}),
        ("head", set()),
    ],
)
def test_what_a_pattern_freezes(freeze, gone: set[str]):
    """A module freezes the groups named inside it; a layer's exact name also the group that it only takes part in."""
    space = proven(Stages(), IMAGE, freeze=freeze)
    assert set(sizes(space)) == EVERYTHING - gone
    frozen = reasons(space)
    patterns = [freeze] if isinstance(freeze, str) else freeze
    for name in gone:
        assert frozen[name] in [f"is frozen by {pattern!r}" for pattern in patterns]


def test_frozen_widths_are_never_cut():
    space = proven(Stages(), IMAGE, freeze="stage1")
    slim = space.extract(space.min_widths)
    assert slim.stage1[0][0].weight.shape == (6, 1, 1, 1)
    assert slim.stage2[0][0].weight.shape == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("freeze", "message"),
    [
        ("stage3", "'stage3' matches none; did you mean"),
        (["stem", "*.se"], r"'\*\.se' matches none"),
        ("", "'' matches none"),
        (None, "freeze must be a name such as 'head'"),
        (["stem", 3], "freeze must be a name such as 'head'"),
    ],
)
def test_pattern_that_names_nothing(freeze, message: str):
    with pytest.raises(TraceError, match=message):
        cafenet.trace(Stages(), IMAGE, freeze=freeze)


class Separable(nn.Module):
    """Layers that create channels (`wide`, `narrow`), and layers that hand on those that they are given."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 16, 1)
        self.depthwise = nn.Sequential(nn.Conv2d(16, 16, 3, groups=16), nn.BatchNorm2d(16), nn.ReLU())
        self.twice = nn.Conv2d(16, 32, 3, groups=16)
        self.act = nn.PReLU(32)
        self.narrow = nn.Conv2d(32, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(pooled(self.narrow(self.act(self.twice(self.depthwise(self.wide(x)))))))


@pytest.mark.parametrize(
    "freeze",
    ["wide", "depthwise.0", "depthwise.1", "twice", "act", "depthwise.0.weight", "depthwise.1.bias", "twice.bias"],
)
def test_layer_that_creates_no_channels(freeze: str):
    space = proven(Separable(), IMAGE, freeze=freeze)
    assert sizes(space) == {"narrow": (8, 1)}
    assert reasons(space)["wide"] == f"is frozen by {freeze!r}"


@pytest.mark.parametrize(
    ("freeze", "message"),
    [
        ("depthwise", r"those in the matches of 'depthwise' come from others, such as wide\.weight; freeze these, or"),
        ("twi*", r"those in the matches of 'twi\*' come from others, such as wide\.weight"),
        ("depthwise.2", "must match a layer that has a width, but no match of 'depthwise.2' has one"),
    ],
)
def test_pattern_that_would_freeze_nothing(freeze: str, message: str):
    with pytest.raises(TraceError, match=message):
        cafenet.trace(Separable(), IMAGE, freeze=freeze)


def test_pattern_beside_one_that_freezes_the_same():
    assert sizes(proven(Separable(), IMAGE, freeze=["depthwise.*", "wide", "act"])) == {"narrow": (8, 1)}


def test_everything_frozen():
    with pytest.raises(TraceError, match="at least one searchable group") as caught:
        cafenet.trace(Stages(), IMAGE, freeze="*")
    assert "stem: is frozen by '*'" in str(caught.value)


class OneOutput(nn.Module):
    """A head of one channel in a container, a map of one channel, and a layer of one output."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3)
        self.map = nn.Conv2d(8, 1, 1)
        self.head = nn.Sequential(nn.Dropout(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        return self.head((x * self.map(x).sigmoid()).mean((2, 3)))


@pytest.mark.parametrize("pattern", ["map", "head", "head.1", "head.1.weight"])
def test_a_layer_of_one_channel_is_fixed_as_it_is(pattern):
    """What it reads may vary."""
    assert cafenet.trace(OneOutput(), torch.zeros(1, 3, 8, 8), freeze=pattern).full_widths == {"body": 8}
