"""Measurement of a model's latency on a device."""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from cafenet.common.options import Count, PositiveInt, check_arguments, check_options
from cafenet.errors import BudgetError
from cafenet.modules.calling import call_arguments, copy_of, expect_values


@dataclass(frozen=True)
class LatencyConfig:
    """Conditions under which latency is measured.

    Example:
        >>> import cafenet
        >>> cafenet.LatencyConfig(batch_size=8, repeats=5).device
        'cpu'
    """

    batch_size: PositiveInt = 1
    """Number of examples per forward pass."""
    num_threads: PositiveInt = 1
    """Number of threads inside PyTorch's operators on a CPU."""
    device: str = "cpu"
    """Device on which the model runs, as PyTorch names it."""
    warmup: Count = 3
    """Number of passes before the first one that counts."""
    repeats: PositiveInt = 15
    """Number of passes of which the median is taken."""

    def __post_init__(self) -> None:
        check_options(self, BudgetError)
        try:
            usable = torch.empty(0, device=self.device).device.type != "meta"
        except (RuntimeError, AssertionError, NotImplementedError):  # unknown, not compiled in, or not present
            usable = False
        if not usable:
            raise BudgetError(f"device must be one that PyTorch can run on here, but is {self.device!r}; use cpu")


@dataclass(frozen=True)
class Latency:
    """Times of one model's forward passes, in ms."""

    median: float
    """The median."""
    low: float
    """The lower quartile."""
    high: float
    """The upper quartile."""


def measure_latency(model: nn.Module, example_inputs: Any, settings: LatencyConfig) -> float:
    """Measure the median time of a forward pass in eval mode without gradients.

    A copy of the model runs, so the model itself is unchanged. The batch is the first dimension of the first tensor in
    `example_inputs`; every tensor of that length is cut or repeated to `settings.batch_size` examples.

    Args:
        model: The model.
        example_inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments.
        settings: Conditions of the measurement.

    Returns:
        The latency in ms.

    Raises:
        BudgetError: If the model or the settings cannot be used.

    Example:
        >>> import cafenet, torch
        >>> from cafenet.searching.latency.measure import measure_latency
        >>> settings = cafenet.LatencyConfig(repeats=3)
        >>> measure_latency(torch.nn.Linear(8, 8), torch.randn(1, 8), settings) > 0
        True
    """
    return measure_latencies([model], example_inputs, settings)[0].median


def measure_latencies(models: Sequence[nn.Module], example_inputs: Any, settings: LatencyConfig) -> list[Latency]:
    """Measure several models in turns, so that a change of the machine's load meets all of them.

    Every model runs as in `measure_latency`: a pass of the first, a pass of the second and so on, then all again.

    Args:
        models: The models, which take the same inputs.
        example_inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments.
        settings: Conditions of the measurement.

    Returns:
        The median and the quartiles of each model, in the same order.

    Raises:
        BudgetError: If a model or the settings cannot be used.

    Example:
        >>> import cafenet, torch
        >>> from cafenet.searching.latency.measure import measure_latencies
        >>> models = [torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)]
        >>> [full, slim] = measure_latencies(models, torch.randn(1, 8), cafenet.LatencyConfig(repeats=3))
        >>> slim.low <= slim.median <= slim.high
        True
    """
    for model in models:
        check_arguments(BudgetError, model=(model, nn.Module), settings=(settings, LatencyConfig))
        expect_values(model, BudgetError)
    device, rounds = torch.device(settings.device), []
    with (
        _threads(settings.num_threads),
        torch.no_grad(),
        torch.random.fork_rng([device] if device.type == "cuda" else []),
    ):
        runners = [copy_of(model).to(device).eval() for model in models]
        args, kwargs = _resized(call_arguments(example_inputs), settings.batch_size, device)
        for _ in range(settings.warmup + settings.repeats):
            rounds.append([_timed_ms(runner, args, kwargs, device) for runner in runners])
    return [_latency(times) for times in zip(*rounds[settings.warmup :], strict=True)]


def _timed_ms(runner: nn.Module, args: Any, kwargs: Any, device: torch.device) -> float:
    """Return the time of one pass."""
    _wait_for(device)
    start = time.perf_counter()
    runner(*args, **kwargs)
    _wait_for(device)
    return 1000 * (time.perf_counter() - start)


def _latency(times: Sequence[float]) -> Latency:
    """Return the median and the quartiles of times."""
    low, _, high = statistics.quantiles(times, method="inclusive") if len(times) > 1 else [times[0]] * 3
    return Latency(statistics.median(times), low, high)


def _resized(arguments: Any, batch_size: int, device: torch.device) -> Any:
    """Return copies of the arguments on the device, with `batch_size` examples."""
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
    """Wait until the device is idle (no-op on a CPU)."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


@contextmanager
def _threads(num_threads: int) -> Iterator[None]:
    """Set the number of PyTorch's threads while the context lasts."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
