"""Wrappers around a model: taken off where possible, refused where not."""

import pytest
import torch
from torch import nn

import cafenet
from networks import IMAGE, pooled, proven, sizes


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(pooled(self.conv(x).relu()))


def never_compile(graph, inputs):
    raise AssertionError("the model was compiled")


@pytest.mark.parametrize(
    "wrap",
    [
        nn.DataParallel,
        lambda model: torch.compile(model, backend=never_compile),
        lambda model: nn.DataParallel(torch.compile(model, backend=never_compile)),
    ],
    ids=["DataParallel", "compile", "both"],
)
def test_wrapper_is_taken_off(wrap):
    model = Small()
    space = proven(wrap(model), IMAGE)
    assert space.model is model
    assert sizes(space) == {"conv": (8, 1)}
    slim = space.extract({"conv": 3}, model=wrap(model))
    assert type(slim) is Small
    assert space.run(IMAGE, {"conv": 3}, model=wrap(model)).equal(space.run(IMAGE, {"conv": 3}))


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_compiled_in_place_or_inside():
    model = Small()
    model.compile(backend=never_compile)
    assert sizes(proven(model, IMAGE)) == {"conv": (8, 1)}
    outer = nn.Sequential(torch.compile(Small(), backend=never_compile), nn.ReLU(), nn.Linear(5, 3))
    assert sizes(proven(outer, IMAGE)) == {"0._orig_mod.conv": (8, 1), "0._orig_mod.head": (5, 1)}


def test_wrapper_around_a_part():
    model = nn.Sequential(nn.DataParallel(Small()), nn.ReLU(), nn.Linear(5, 3))
    assert sizes(proven(model, IMAGE)) == {"0.module.conv": (8, 1), "0.module.head": (5, 1)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    "script", [torch.jit.script, lambda model: torch.jit.trace(model, IMAGE)], ids=["script", "trace"]
)
def test_script_modules_are_refused(script):
    with pytest.raises(cafenet.TraceError, match="a ScriptModule cannot be traced"):
        cafenet.trace(script(Small()), IMAGE)
    with pytest.raises(cafenet.TraceError, match="'0' is one"):
        cafenet.trace(nn.Sequential(script(Small()), nn.Linear(5, 3)), IMAGE)


def test_sharded_modules_are_refused():
    class FullyShardedDataParallel(nn.Module):
        """PyTorch's own needs a process group to be built; it is known by its name."""

    with pytest.raises(cafenet.TraceError, match="trace it before wrapping it"):
        cafenet.trace(FullyShardedDataParallel(), IMAGE)


@pytest.mark.parametrize("model", [None, "resnet18", Small, lambda x: x])
def test_what_is_no_module_is_refused(model):
    with pytest.raises(cafenet.TraceError, match=r"model must be an nn.Module, but got"):
        cafenet.trace(model, IMAGE)
