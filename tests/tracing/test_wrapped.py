"""Wrappers around a model: taken off where possible, refused where not."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import TraceError
from tests.helpers.networks import IMAGE, pooled, proven, sizes


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


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
@pytest.mark.parametrize("inside", [False, True])
def test_compilation_still_works_after_tracing(inside: bool):
    """An attempt to compile under a dispatch mode would fail, and mark the code as not to be compiled for good."""
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    # code that no other test has run, once for each case
    scope = {"Small": Small}
    exec(f"class Fresh(Small):\n    def forward(self, x):\n        return super().forward(x) * {2 + inside}", scope)
    model = scope["Fresh"]()
    if inside:
        model = nn.Sequential(torch.compile(model, backend=backend), nn.Linear(5, 3))
    else:
        model.compile(backend=backend)
    proven(model, IMAGE)
    assert compiled == []
    model(IMAGE)
    assert len(compiled) == 1


def test_compiler_is_not_imported():
    """It takes a second; only a model that was compiled needs it."""
    script = (
        "import sys, torch, cafenet\n"
        "model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 1), torch.nn.Conv2d(8, 5, 1))\n"
        "cafenet.trace(model, torch.zeros(1, 3, 8, 8))\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_wrapper_around_a_part():
    model = nn.Sequential(nn.DataParallel(Small()), nn.ReLU(), nn.Linear(5, 3))
    assert sizes(proven(model, IMAGE)) == {"0.module.conv": (8, 1), "0.module.head": (5, 1)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    "script", [torch.jit.script, lambda model: torch.jit.trace(model, IMAGE)], ids=["script", "trace"]
)
def test_script_modules_are_refused(script):
    with pytest.raises(TraceError, match="a ScriptModule cannot be traced"):
        cafenet.trace(script(Small()), IMAGE)
    with pytest.raises(TraceError, match="'0' is one"):
        cafenet.trace(nn.Sequential(script(Small()), nn.Linear(5, 3)), IMAGE)


def test_sharded_modules_are_refused():
    class FullyShardedDataParallel(nn.Module):
        """PyTorch's own needs a process group to be built; it is known by its name."""

    with pytest.raises(TraceError, match="trace it before wrapping it"):
        cafenet.trace(FullyShardedDataParallel(), IMAGE)


@pytest.mark.parametrize("model", [None, "resnet18", Small, lambda x: x])
def test_what_is_no_module_is_refused(model):
    with pytest.raises(TraceError, match=r"model must be an nn.Module, but got"):
        cafenet.trace(model, IMAGE)
