"""The process in which one tool meets one model: one thread, a cap on memory, every step reported to the parent."""

import contextlib
import gc
import os
import statistics
import time
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch
from torch import nn

from benchmarks.zoo.models import build_model, image, image_size
from benchmarks.zoo.tool import Tool

NUM_RUNS = 3
MAX_ERROR_CHARS = 160
SLOW_SECONDS = 10.0
"""An analysis that takes longer than this is run once, not three times."""


@dataclass(frozen=True)
class Job:
    """One model and one tool."""

    model: str
    tool: str
    memory_gb: float
    seed: int


def tool_of(name: str) -> type[Tool]:
    """The tool of that name; only that one is imported, so that no tool runs beside another's patches."""
    if name in ("bare", "cafenet"):
        from benchmarks.zoo.ours import Bare, CafeNet

        return {"bare": Bare, "cafenet": CafeNet}[name]
    from benchmarks.zoo.peers import ModelOpt, TorchPruning

    return {"torch-pruning": TorchPruning, "modelopt": ModelOpt}[name]


def work(parent: Connection, job: Job) -> None:
    """Send ("step", name) before each step and ("facts", dict) after it, or ("broken", reason) instead of all."""
    _silence()
    _limit_memory(job.memory_gb)
    torch.set_num_threads(1)
    torch.manual_seed(job.seed)
    try:
        tool = _set_up(job)
    except Exception as error:  # an incomplete installation, say: no verdict on the tool
        parent.send(("broken", _first_line(error, job.memory_gb)))
        return
    try:
        _measure(parent, tool)
    except Exception as error:  # whatever way a tool has of failing on a model: that is the result
        parent.send(("facts", {"error": _first_line(error, job.memory_gb)}))


def _set_up(job: Job) -> Tool:
    kind = tool_of(job.tool)
    os.environ.update(kind.environment)
    _warm_up(kind)
    model = build_model(job.model)
    return kind(model, image(image_size(job.model, model)))


def _measure(parent: Connection, tool: Tool) -> None:
    parent.send(("facts", {"image_size": tool.example.shape[-1]}))
    runs: list[float] = []
    while len(runs) < NUM_RUNS and (not runs or runs[0] < SLOW_SECONDS):
        tool.prepare()
        gc.collect()
        parent.send(("step", "analysis"))
        start = time.perf_counter()
        facts = tool.analyse()
        runs.append(time.perf_counter() - start)
        parent.send(("facts", facts | {"seconds": statistics.median(runs), "runs": runs}))
    parent.send(("step", "use"))
    parent.send(("facts", tool.use() | {"ok": True}))


def _warm_up(kind: type[Tool]) -> None:
    """Use the tool once on a small network, so that imports and first calls are in nobody's time."""
    layers = [nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.ReLU()]
    tool = kind(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1000)).eval(), image(32))
    tool.prepare()
    tool.analyse()
    tool.use()


def _first_line(error: Exception, memory_gb: float) -> str:
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return f"needs more than {memory_gb:g} GB"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {next(iter(lines), '')}"[:MAX_ERROR_CHARS]


def _silence() -> None:
    """The tools print much; what matters comes through the pipe."""
    warnings.simplefilter("ignore")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _limit_memory(memory_gb: float) -> None:
    """A tool that runs away must not take the machine with it."""
    with contextlib.suppress(ImportError):  # not on Windows
        import resource

        num_bytes = int(memory_gb * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (num_bytes, num_bytes))
