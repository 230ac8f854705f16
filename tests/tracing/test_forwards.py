"""Forwards set on a module itself: a slim model runs its own layers, or the model is refused."""

import functools
import types
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import TraceError
from tests.helpers.networks import IMAGE, Forward, pooled, proven, sizes


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x, scale=1.0):
        return self.head(pooled(self.conv(x * scale).relu()))


def halved(self, x):
    return Net.forward(self, x / 2)


def old_in_a_closure(net: Net):
    old = net.forward
    return lambda x: old(x / 2)


def wrapped(net: Net):
    @functools.wraps(net.forward)
    def forward(x):
        return Net.forward(net, x / 2)

    return forward


def method_around_the_old_one(net: Net):
    old = net.forward
    return types.MethodType(lambda self, x: old(x / 2), net)


@pytest.mark.parametrize(
    "replace",
    [
        lambda net: types.MethodType(halved, net),
        lambda net: functools.partial(halved, net),
        lambda net: functools.partial(net.forward, scale=0.5),
        lambda net: net.forward,
    ],
    ids=["method", "partial of a function", "partial of a method", "its own"],
)
def test_method_is_taken_along(replace):
    model = Net()
    model.forward = replace(model)
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 1)}
    slim = space.extract({"conv": 3})
    x = torch.rand(2, 3, 8, 8)
    before = slim(x)
    with torch.no_grad():
        model.conv.weight.zero_()
    assert slim(x).equal(before)


@pytest.mark.parametrize(
    "replace",
    [
        old_in_a_closure,
        wrapped,
        method_around_the_old_one,
        lambda net: functools.partial(old_in_a_closure(net)),
        lambda net: torch.compile(net.forward, backend="eager"),
    ],
    ids=["closure", "wraps", "method around the old one", "partial of a closure", "compiled"],
)
def test_function_that_runs_the_original_is_refused(replace):
    model = Net()
    model.forward = replace(model)
    with pytest.raises(TraceError, match=r"must be a method bound to it, but that of the model \(Net\) is \S"):
        cafenet.trace(model, IMAGE)


def test_the_place_is_named():
    inner = Net()
    inner.forward = old_in_a_closure(inner)
    model = Forward(lambda net, x: net.inner(x), inner=inner)
    with pytest.raises(TraceError, match=r"but that of inner \(Net\) is"):
        cafenet.trace(model, IMAGE)


def test_functions_without_a_module_are_taken_along():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    model[1].forward = lambda x: 2 * x
    space = cafenet.trace(model, torch.zeros(1, 3, 4, 4))
    assert space.full_widths == {"0": 8}
    images = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(space.extract()(images), model(images))


def test_a_method_of_another_object_is_refused():
    @dataclass
    class Wrapper:
        inner: nn.Module

        def run(self, x):
            return type(self.inner).forward(self.inner, x)

    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1))
    model.forward = Wrapper(model).run
    with pytest.raises(TraceError, match="must be a method bound to it"):
        cafenet.trace(model, torch.zeros(1, 3, 4, 4))
