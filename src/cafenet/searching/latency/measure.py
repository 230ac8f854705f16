"""Measurement of a model's latency in the runtime that will serve it.

Runtimes of this machine are timed here, a pass of each model in turns. If a reference model runs in turns with them,
each time is taken relative to its own: if other load makes the reference twice as slow, a model that takes 6 ms at that
moment counts as 3 ms. Load that slows one of the two more than the other does not cancel. With one thread on a CPU,
time in which other processes had the core does not count either: a pass that takes 1.2 ms of the processor and 8 ms by
the clock counts as 1.2 ms. A device elsewhere gets a file and answers milliseconds.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from cafenet.common.options import Count, Positive, PositiveInt, check_arguments, check_options
from cafenet.errors import BudgetError
from cafenet.modules.copying import copy_of
from cafenet.modules.inputs import call_arguments
from cafenet.modules.unwrapping import expect_values
from cafenet.runtimes.choose import check_quantised, check_runtime_name, file_for, is_device, made_with, prepared
from cafenet.runtimes.device_command import answer_ms, device_of
from cafenet.runtimes.session import Pass
from cafenet.searching.latency.kept_times import KeptTimes, machine_name


@dataclass(frozen=True)
class LatencyConfig:
    """Conditions under which latency is measured.

    Example:
        >>> import cafenet
        >>> settings = cafenet.LatencyConfig(runtime="onnxruntime", batch_size=8)
        >>> settings.device, settings.num_threads
        ('cpu', 1)
    """

    runtime: str | Callable[[Path], float] = "torch"
    """Runtime: torch, torch.compile, onnxruntime, openvino, executorch, `command:onnx PROGRAM {file}` (also
    pt2, xml or pte), which gets an exported file and prints milliseconds; in Python also a function that answers."""

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
    quantize: Literal["int8"] | None = None
    """"int8" measures the int8 file of a model in the runtime, and makes budgets of latency and file size those of it;
    None measures the model as it is."""
    retries: Count = 2
    """Number of further questions to a command or function that does not answer well."""
    timeout_seconds: Positive = 300
    """Time limit of one answer of a command."""
    cache: str | None = None
    """File that keeps the latency of each width with all that it was measured with, for all searches that name it."""

    def __post_init__(self) -> None:
        check_options(self, BudgetError)
        if not (isinstance(self.runtime, str) or callable(self.runtime)):
            raise BudgetError(f"LatencyConfig: runtime must be a name or a function, but is {self.runtime!r}")
        try:
            usable = torch.empty(0, device=self.device).device.type != "meta"
        except (RuntimeError, AssertionError, NotImplementedError):  # unknown, not compiled in, or not present
            usable = False
        if not usable:
            raise BudgetError(f"device must be one that PyTorch can run on here, but is {self.device!r}; use cpu")
        check_runtime_name(self.runtime, self.device)
        if self.quantize is not None:
            check_quantised(self.runtime)

    @property
    def is_elsewhere(self) -> bool:
        """True if a command or a function answers, instead of a runtime in this process."""
        return is_device(self.runtime)

    def made_with(self) -> dict[str, Any]:
        """Return what a measurement depends on, as plain values.

        Returns:
            The options by name. The runtime is left out if it is PyTorch, as in files that were written before there
            were others.
        """
        other = {"runtime", "retries", "timeout_seconds", "cache", "quantize"}
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in other}
        if self.quantize is not None:
            plain["quantize"] = self.quantize
        return plain if self.runtime == "torch" else plain | made_with(self.runtime)


@dataclass(frozen=True)
class Latency:
    """Times of one model's forward passes, in ms."""

    median: float
    """The median."""
    low: float
    """The lower quartile."""
    high: float
    """The upper quartile."""


@dataclass(frozen=True, eq=False)
class KnownLatency:
    """A model, usually the full one, with its latency as it was measured once."""

    model: nn.Module
    """The model."""
    ms: float
    """Latency of the model, which a budget such as "75% latency" is a share of."""


class Reference:
    """A model that runs in turns with others, whose times are related to its own."""

    def __init__(self, model: nn.Module, example_inputs: Any, settings: LatencyConfig, ms: float | None = None) -> None:
        """Make no measurement yet.

        Args:
            model: The model, usually the full one.
            example_inputs: Inputs of the model.
            settings: Conditions of the measurement.
            ms: Its latency if it is known, to which others are related; None takes the first median.
        """
        self.ms = ms
        """Latency of the model, once it is known."""
        self._arguments, self._open = (model, example_inputs, settings), ExitStack()

    @cached_property
    def run_once(self) -> Pass:
        """A pass of the model, which is prepared at the first use."""
        return self._open.enter_context(_ready(*self._arguments))

    def related(self, times: Sequence[float], own: Sequence[float]) -> list[float]:
        """Relate times of a model to those of the reference in the same rounds.

        Args:
            times: Times of the model.
            own: Times of the reference.

        Returns:
            The times that the model would have taken while the reference takes its known latency.
        """
        if self.ms is None:
            self.ms = statistics.median(own)
        return [self.ms * each / reference for each, reference in zip(times, own, strict=True)]

    def close(self) -> None:
        """Free what the runtime holds of it."""
        self._open.close()
        self.__dict__.pop("run_once", None)


def measure_latency(
    model: nn.Module, example_inputs: Any, settings: LatencyConfig, reference: Reference | None = None
) -> float:
    """Measure the median time of a forward pass in eval mode without gradients.

    A copy of the model runs, so the model itself is unchanged. The batch is the first dimension of the first tensor in
    `example_inputs`; every tensor of that length is cut or repeated to `settings.batch_size` examples.

    Args:
        model: The model.
        example_inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments.
        settings: Conditions of the measurement.
        reference: A model that runs in turns with it, to whose known latency it is related; None measures the model
            alone.

    Returns:
        The latency in ms.

    Raises:
        CafeNetError: If the model, the runtime or the settings cannot be used.

    Example:
        >>> import cafenet, torch
        >>> from cafenet.searching.latency.measure import measure_latency
        >>> settings = cafenet.LatencyConfig(repeats=3)
        >>> measure_latency(torch.nn.Linear(8, 8), torch.randn(1, 8), settings) > 0
        True
    """
    return measure_latencies([model], example_inputs, settings, reference)[0].median


def measure_latencies(
    models: Sequence[nn.Module], example_inputs: Any, settings: LatencyConfig, reference: Reference | None = None
) -> list[Latency]:
    """Measure several models in turns, so that a change of the machine's load meets all of them.

    Every model runs as in `measure_latency`: a pass of the first, a pass of the second and so on, then all again. A
    device elsewhere is asked once for each model.

    Args:
        models: The models, which take the same inputs.
        example_inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments.
        settings: Conditions of the measurement.
        reference: A further model that runs in turns with them, to whose known latency all are related.

    Returns:
        The median and the quartiles of each model, in the same order.

    Raises:
        CafeNetError: If a model, the runtime or the settings cannot be used.

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
    if settings.cache is None:
        return _measured(models, example_inputs, settings, reference)
    kept = KeptTimes(Path(settings.cache), settings.made_with() | {"machine": machine_name(settings.device)})
    keys = [kept.key_of(model, example_inputs) for model in models]
    known = kept.read()
    fresh = [(key, model) for key, model in dict(zip(keys, models, strict=True)).items() if key not in known]
    groups = [[each] for each in fresh] if settings.is_elsewhere else [fresh]  # each answer is kept at once
    for group in filter(None, groups):
        found = _measured([model for _, model in group], example_inputs, settings, reference)
        for (key, _), latency in zip(group, found, strict=True):
            kept.add(key, (latency.median, latency.low, latency.high))
            known[key] = (latency.median, latency.low, latency.high)
    return [Latency(*known[key]) for key in keys]


def check_runtime(model: nn.Module, example_inputs: Any, settings: LatencyConfig) -> None:
    """Run a model once in the runtime, so that an operator that it lacks is reported before long work.

    Nothing is run if the runtime is PyTorch, which the model was traced with.

    Args:
        model: The full model.
        example_inputs: Inputs of the model.
        settings: Conditions of the measurement.

    Raises:
        CafeNetError: If the runtime or the device cannot run the model.
    """
    if settings.runtime != "torch":
        _measured([model], example_inputs, _once(settings), None)


def _once(settings: LatencyConfig) -> LatencyConfig:
    """Return settings with a single pass."""
    return replace(settings, warmup=0, repeats=1)


def _measured(
    models: Sequence[nn.Module], example_inputs: Any, settings: LatencyConfig, reference: Reference | None
) -> list[Latency]:
    """Measure models without regard to what is kept."""
    if settings.is_elsewhere:
        answers = [_answered(model, example_inputs, settings) for model in models]
        return [Latency(each, each, each) for each in answers]
    with ExitStack() as ready, _conditions(settings):
        passes = [ready.enter_context(_ready(model, example_inputs, settings)) for model in models]
        if reference is not None:
            passes.append(reference.run_once)
        timed = _alone_ms if settings.num_threads == 1 and settings.device == "cpu" else _timed_ms
        rounds = [[timed(each) for each in passes] for _ in range(settings.warmup + settings.repeats)]
    columns = [list(column) for column in zip(*rounds[settings.warmup :], strict=True)]
    if reference is None:
        return [_latency(times) for times in columns]
    return [_latency(reference.related(times, columns[-1])) for times in columns[:-1]]


def _answered(model: nn.Module, example_inputs: Any, settings: LatencyConfig) -> float:
    """Return what a device elsewhere answers for a model."""
    device = device_of(settings.runtime)
    with torch.no_grad(), torch.random.fork_rng([]):
        inputs = resized(call_arguments(example_inputs), settings.batch_size, torch.device("cpu"))
        with file_for(device.file_format, copy_of(model).cpu().eval(), inputs, settings.quantize) as file:
            return answer_ms(device, file, retries=settings.retries, timeout_seconds=settings.timeout_seconds)


@contextmanager
def _conditions(settings: LatencyConfig) -> Iterator[None]:
    """Pin the number of threads and keep the random state while the context lasts."""
    device = torch.device(settings.device)
    devices = [device] if device.type == "cuda" else []
    with _threads(settings.num_threads), torch.no_grad(), torch.random.fork_rng(devices):
        yield


@contextmanager
def _ready(model: nn.Module, example_inputs: Any, settings: LatencyConfig) -> Iterator[Pass]:
    """Make a copy of a model ready in the runtime; the pass is usable while the context lasts."""
    device = torch.device(settings.device)
    runner = copy_of(model).to(device).eval()
    inputs = resized(call_arguments(example_inputs), settings.batch_size, device)
    options: dict[str, Any] = {"num_threads": settings.num_threads, "device": device, "quantize": settings.quantize}
    with prepared(str(settings.runtime), runner, inputs, **options) as session:
        yield session.bind(inputs)


def _timed_ms(run_once: Pass) -> float:
    """Return the time of one pass."""
    start = time.perf_counter()
    run_once()
    return 1000 * (time.perf_counter() - start)


def _alone_ms(run_once: Pass) -> float:
    """Return the time of one pass of one thread without the time in which other processes had the core: that of the
    processor, or that of the clock if it is less, because helpers of a runtime may spin beside the pass."""
    start, own = time.perf_counter(), time.process_time()
    run_once()
    own = time.process_time() - own
    return 1000 * min(time.perf_counter() - start, own)


def _latency(times: Sequence[float]) -> Latency:
    """Return the median and the quartiles of times."""
    low, _, high = statistics.quantiles(times, method="inclusive") if len(times) > 1 else [times[0]] * 3
    return Latency(statistics.median(times), low, high)


def resized(arguments: Any, batch_size: int, device: torch.device) -> Any:
    """Copy inputs to a device, with another number of examples.

    Args:
        arguments: Positional and keyword arguments of a model.
        batch_size: Number of examples.
        device: The device.

    Returns:
        The copies; every tensor of the length of the first is cut or repeated.
    """
    tensors = [leaf for leaf in tree_flatten(arguments)[0] if isinstance(leaf, Tensor) and leaf.ndim]
    batch = tensors[0].shape[0] if tensors else -1

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if leaf.ndim and leaf.shape[0] == batch:
            leaf = leaf[torch.arange(batch_size) % batch]
        return leaf.detach().clone().to(device)

    return tree_map(one, arguments)


@contextmanager
def _threads(num_threads: int) -> Iterator[None]:
    """Set the number of PyTorch's threads while the context lasts."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
