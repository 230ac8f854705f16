"""Latency: real measurements of models on a device."""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from cafenet.common.options import Count, PositiveInt, check_options
from cafenet.errors import BudgetError
from cafenet.modules.calling import call_arguments, copy_of, expect_values


@dataclass(frozen=True)
class LatencyConfig:
    """How a latency is measured."""

    batch_size: PositiveInt = 1
    num_threads: PositiveInt = 1
    """Threads inside PyTorch's operators on a CPU."""
    device: str = "cpu"
    warmup: Count = 3
    """Runs before the first one that counts."""
    repeats: PositiveInt = 15
    """Runs that the median is taken of."""

    def __post_init__(self) -> None:
        check_options(self, BudgetError)
        try:
            usable = torch.empty(0, device=self.device).device.type != "meta"
        except (RuntimeError, AssertionError, NotImplementedError):  # unknown, not compiled in, not there
            usable = False
        if not usable:
            raise BudgetError(f"device must be one that PyTorch can run on here, but is {self.device!r}; use cpu")


def measure_latency(model: nn.Module, example_inputs: Any, settings: LatencyConfig) -> float:
    """The median time of a forward pass in eval mode without gradients, in ms.

    Runs a copy, so the model is left as it was. The batch is the first dimension of the first tensor in
    `example_inputs`; every tensor of that length is cut or repeated to `settings.batch_size` examples.
    """
    expect_values(model, BudgetError)
    device, times = torch.device(settings.device), []
    with (
        _threads(settings.num_threads),
        torch.no_grad(),
        torch.random.fork_rng([device] if device.type == "cuda" else []),
    ):
        runner = copy_of(model).to(device).eval()
        args, kwargs = _resized(call_arguments(example_inputs), settings.batch_size, device)
        for _ in range(settings.warmup + settings.repeats):
            _wait_for(device)
            start = time.perf_counter()
            runner(*args, **kwargs)
            _wait_for(device)
            times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times[settings.warmup :])


def _resized(arguments: Any, batch_size: int, device: torch.device) -> Any:
    """Copies on the device, with as many examples as the batch size says."""
    tensors = [leaf for leaf in tree_flatten(arguments)[0] if isinstance(leaf, Tensor) and leaf.ndim]
    batch = tensors[0].shape[0] if tensors else -1

    def resized(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if leaf.ndim and leaf.shape[0] == batch:
            leaf = leaf[torch.arange(batch_size) % batch]
        return leaf.detach().clone().to(device)

    return tree_map(resized, arguments)


def _wait_for(device: torch.device) -> None:
    """Until the device has done all that it was given; a CPU has."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


@contextmanager
def _threads(num_threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
