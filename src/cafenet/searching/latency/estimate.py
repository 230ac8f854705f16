"""An estimate of latency from a few measurements, for the inner loop of a search.

The estimate is a sum with no negative term: a constant, a rate for FLOPs, one for params and one for each width. It
therefore never falls when a group gets wider, as a search under a budget requires. Smallest example: a model that takes
2 ms at full width and 1.5 ms at half its FLOPs is estimated as 1 ms + 1 ms x FLOPs / full FLOPs. Runtimes
compute blocks of channels, so widths may count as rounded up to multiples of 8, 16 or 32; which of these, the
measurements decide by how well each is predicted by the others. The final pick is measured.
"""

import json
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cafenet.common.files import write_text
from cafenet.common.run_log import RunLog
from cafenet.errors import BudgetError
from cafenet.searching.latency.kept_times import input_shapes, machine_name
from cafenet.searching.latency.measure import KnownLatency, LatencyConfig, Reference, measure_latency
from cafenet.space.bins import Bins
from cafenet.space.cost import FloatArray, IntArray
from cafenet.space.width_space import WidthSpace

FORMAT = "cafenet-latency"
"""Name of the format of latency files."""
FORMAT_VERSION = 1
"""Version of the format of latency files."""
NUM_MEASURED = 24
"""Number of width vectors that are measured unless a caller says otherwise."""

_OF_MACHINE = ("device_name", "torch")
_RIDGE = 1.0  # shrinks the rates of single widths, because two dozen noisy measurements say little about each of them
_SHAPES = ((1, 1.0), (1, 3.0), (8, 1.0), (8, 3.0), (16, 1.0), (16, 3.0), (32, 1.0), (32, 3.0))
"""Steps of channels, and factors of the ridge, of which the measurements choose."""
_BETTER, _ENOUGH = 0.002, 8
"""Another shape than the first must predict measurements left out better by 0.2%, and needs 8 measurements."""

NUM_MEASURED = 24
"""Number of width vectors that are measured for an estimate."""


@dataclass(frozen=True, eq=False)
class LatencyModel:
    """An estimate of latency, fitted to measured width vectors."""

    space: WidthSpace
    """The width space of the full model."""
    widths: IntArray = field(repr=False)
    """Channels per group that were measured, one width vector per row."""
    latency_ms: FloatArray = field(repr=False)
    """The measured latency of each row."""
    key: dict[str, Any] = field(default_factory=dict, repr=False)
    """Everything that the measurements depend on, as plain values in a latency file."""

    @property
    def full_ms(self) -> float:
        """Measured latency of the full model."""
        full = [group.channels for group in self.space.groups]
        return float(self.latency_ms[(self.widths == full).all(axis=1)][0])

    def predict(self, widths: IntArray) -> FloatArray:
        """Estimate latencies.

        Args:
            widths: Channels per group, shape (N, groups).

        Returns:
            N latencies in ms; a larger width never has a smaller one.
        """
        # A matrix product would round differently for different numbers of rows, and a vector that fits alone might
        # not fit among others.
        estimates: FloatArray = (self._terms(widths, self.shape[0]) * self.rates_ms).sum(axis=1)
        return estimates

    @cached_property
    def rates_ms(self) -> FloatArray:
        """Cost of each term at full width in ms: the constant, FLOPs, params, then the groups."""
        step, ridge = self.shape
        return fitted(self._terms(self.widths, step), self.latency_ms, ridge=ridge)

    @cached_property
    def shape(self) -> tuple[int, float]:
        """Step and ridge of the fit, those that predict measurements left out best.

        In steps of 16, widths of 17 to 32 all count as 32.
        """
        if len(self.widths) < _ENOUGH:
            return _SHAPES[0]
        errors = {shape: self._left_out(*shape) for shape in _SHAPES}
        best = min(_SHAPES, key=lambda shape: errors[shape])
        return best if errors[best] < errors[_SHAPES[0]] - _BETTER else _SHAPES[0]

    @cached_property
    def error(self) -> float:
        """Mean relative error of predicting a measurement that was left out of the fit, in the chosen shape; 0.1 is
        10%."""
        return self._left_out(*self.shape)

    def _left_out(self, step: int, ridge: float) -> float:
        """Return the mean relative error of predicting each measurement by the others in one shape."""
        terms, errors = self._terms(self.widths, step), []
        for row, measured in enumerate(self.latency_ms):
            rates = fitted(np.delete(terms, row, axis=0), np.delete(self.latency_ms, row), ridge=ridge)
            errors.append(abs(float(terms[row] @ rates) / measured - 1))
        return float(np.mean(errors))

    def _terms(self, widths: IntArray, step: int) -> FloatArray:
        """Return the terms of the sum, each 1 at full width, of widths that are rounded up to whole steps."""
        full = np.array([group.channels for group in self.space.groups])
        widths = np.minimum(-(-np.asarray(widths) // step) * step, full)
        counts = [self.space.flops(widths) / self.space.flops(), self.space.params(widths) / self.space.params()]
        return np.column_stack([np.ones(len(widths)), *counts, widths / full])


def fit_latency(
    space: WidthSpace,
    bins: Bins,
    example_inputs: Any,
    settings: LatencyConfig,
    *,
    num_measured: int = NUM_MEASURED,
    seed: int = 0,
    cache: str | os.PathLike[str] | None = None,
    anywhere: bool = False,
    is_written: bool = True,
    quiet: bool = True,
    full: KnownLatency | None = None,
) -> LatencyModel:
    """Measure the smallest, the full and random width vectors, and fit an estimate of latency to them.

    Args:
        space: The width space of the full model.
        bins: The bins of each group, which decide the widths that can occur.
        example_inputs: Inputs of the model.
        settings: Conditions of the measurement.
        num_measured: Number of width vectors to measure, at least 3.
        seed: Seed of the random vectors.
        cache: JSON file of measurements. It is used if it belongs to the same space, bins, inputs, settings, device and
            options; otherwise it is rewritten if `is_written`.
        anywhere: If True, measurements in the cache from another machine or version of PyTorch are used, too, so that a
            search that began there can continue.
        is_written: If False, the cache is never written.
        quiet: If False, the progress of the measurements is shown.
        full: The model that a budget is a share of, with its latency, to which all times are related; None relates them
            to the first median of the full model.

    Returns:
        The fitted estimate.

    Raises:
        BudgetError: If `num_measured` is below 3, or the cache cannot be read or written.
    """
    if num_measured < 3:
        raise BudgetError(f"an estimate of latency needs at least 3 measured width vectors, but got {num_measured}")
    key = _key(space, bins, example_inputs, settings) | {"num_measured": num_measured, "seed": seed}
    known = _read(Path(cache), key, _OF_MACHINE if anywhere else ()) if cache is not None else None
    if known is not None:
        return LatencyModel(space, *known)
    widths = bins.widths(spread_rows(bins.num_bins, num_measured, np.random.default_rng(seed)))
    model = LatencyModel(space, widths, _measured(space, widths, example_inputs, settings, quiet, full), key)
    if cache is not None and is_written:
        write_latency(model, cache)
    return model


def _measured(
    space: WidthSpace,
    widths: IntArray,
    example_inputs: Any,
    settings: LatencyConfig,
    quiet: bool,
    known: KnownLatency | None,
) -> FloatArray:
    """Measure width vectors in turns with the full model, which comes first: a runtime that lacks one of its operators
    is noticed at once."""
    model, ms = (space.extract(), None) if known is None else (known.model, known.ms)
    reference = None if settings.is_elsewhere else Reference(model, example_inputs, settings, ms)
    progress = RunLog(None, len(widths), title="latency", quiet=quiet)
    progress.start(0)
    try:
        rows = sorted(range(len(widths)), key=lambda row: -int(widths[row].sum()))
        times = np.zeros(len(widths))
        for number, row in enumerate(rows[:1] + sorted(rows[1:]), 1):
            times[row] = measure_latency(space.extract(widths[row].tolist()), example_inputs, settings, reference)
            progress.show(number, f"{times[row]:.3g} ms")
    finally:
        progress.close()
        if reference is not None:
            reference.close()
    return times


def write_latency(model: LatencyModel, path: str | os.PathLike[str]) -> None:
    """Write a file that `fit_latency` accepts as its cache.

    Args:
        model: The estimate whose measurements are written.
        path: The file.

    Raises:
        BudgetError: If the file cannot be written.
    """
    _write(Path(path), {"key": model.key, "widths": model.widths.tolist(), "latency_ms": model.latency_ms.tolist()})


def fitted(terms: FloatArray, measured: FloatArray, num_shared: int = 3, ridge: float = 1.0) -> FloatArray:
    """Fit a sum with no negative term by the least squared relative errors.

    Args:
        terms: The terms of the sum, one row for each measurement.
        measured: The measurements.
        num_shared: Number of leading terms that all groups share; the rates of the others are shrunk.
        ridge: Factor by which they are shrunk more.

    Returns:
        One rate for each term.
    """
    from scipy.optimize import nnls  # takes long to import

    held_back = np.eye(terms.shape[1])[num_shared:] * _RIDGE * ridge / measured.max()
    left = np.concatenate([terms / measured[:, None], held_back])
    rates: FloatArray = nnls(left, np.repeat([1.0, 0.0], [len(terms), len(held_back)]))[0]
    return rates


def spread_rows(num_bins: IntArray, n: int, rng: np.random.Generator) -> IntArray:
    """Draw the distinct vectors to measure: the smallest, the full one, and narrow and wide ones between, shuffled.

    Args:
        num_bins: Number of bins of each group.
        n: Largest number of vectors.
        rng: Source of random numbers.

    Returns:
        Bins per group, one vector per row.
    """
    power = np.exp(rng.uniform(-1, 1, (n, 1)))  # ratios of one vector lie around 1 / (1 + power): 0.27 to 0.73
    bin_counts = 1 + (rng.random((n, num_bins.size)) ** power * num_bins).astype(np.int64)
    bin_counts[0], bin_counts[1] = 1, num_bins
    return rng.permutation(np.unique(bin_counts, axis=0))


def _key(space: WidthSpace, bins: Bins, example_inputs: Any, settings: LatencyConfig) -> dict[str, Any]:
    """Return everything that measurements depend on, as plain values."""
    return {
        "model": type(space.model).__qualname__,
        "flops": space.flops(),
        "params": space.params(),
        "groups": [[group.name, group.channels, group.first, group.size] for group in bins.groups],
        "inputs": input_shapes(example_inputs),
        "settings": settings.made_with(),
        "device_name": machine_name(settings.device),
        "torch": str(torch.__version__),
    }


def _read(
    path: Path, key: dict[str, Any], without: tuple[str, ...]
) -> tuple[IntArray, FloatArray, dict[str, Any]] | None:
    """Return the measurements in a file, or None if there are none for this key; parts named in `without` may
    differ."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            raise ValueError(f"format must be {FORMAT!r}")
        before = dict(content["key"])
        if content["format_version"] != FORMAT_VERSION or before | {name: key[name] for name in without} != key:
            return None
        widths, times = np.array(content["widths"], dtype=np.int64), np.array(content["latency_ms"], dtype=np.float64)
        return widths, times, before
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BudgetError(
            f"{path} must be a file of latencies, but is not ({error}); remove it or use another"
        ) from error


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write a latency file."""
    try:
        write_text(path, json.dumps({"format": FORMAT, "format_version": FORMAT_VERSION, **content}))
    except OSError as error:
        raise BudgetError(f"latencies must be written to {path}, but: {error}; use another path") from error
