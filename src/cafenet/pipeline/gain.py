"""The gain of a search: the model before, the slim model, and Uniform with the same training, side by side.

All numbers are those of finished models, never of a supernet. Latencies are measured in turns, so that a busy minute
does not fall on one model alone.
"""

import io
import json
import statistics
from collections.abc import Mapping, Sized
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cafenet.common.read_files import read_if_there
from cafenet.common.run_files import GAIN
from cafenet.common.write_files import write_file
from cafenet.modules.batches import LossFunction
from cafenet.modules.copying import RECORD
from cafenet.modules.digests import digest_of_model
from cafenet.pipeline.job import Job
from cafenet.scoring.examples import Data, hold_examples
from cafenet.scoring.metrics import metric_name
from cafenet.scoring.model_score import model_score
from cafenet.searching.latency.measure import Latency, measure_latencies
from cafenet.space.width_space import WidthSpace

ROUNDS = 3
"""Number of times that the latency of every model is measured, all models in turns."""
_FINGERPRINT = 256
"""Number of examples by which data are recognised."""


@dataclass(frozen=True)
class Measured:
    """One finished model in the comparison."""

    name: str
    """"before", "after" (the widths that the search found) or "Uniform"."""
    flops: int
    """FLOPs; one multiply-add counts as one."""
    params: int
    """Number of parameters."""
    latency_ms: float
    """Median time of a forward pass; all models of a comparison are measured in turns."""
    file_bytes: int
    """Size of a file of its weights."""
    score: float
    """Metric on all validation examples."""
    test_score: float | None = None
    """Metric on all test examples, if there are any."""
    latency_range_ms: tuple[float, float] | None = None
    """Lower and upper quartile of the times; None in files of earlier versions."""
    widths: Mapping[str, int] | None = None
    """Number of channels of each group; None for the original, and in files of earlier versions."""


@dataclass(frozen=True)
class Gain:
    """The models of a comparison, and the conditions that they share."""

    metric: str
    """Name of the metric."""
    models: tuple[Measured, ...]
    """The original model, the slim model and, if it was trained, Uniform."""
    is_trained: bool
    """True if the original came trained."""
    uniform: str
    """Description of Uniform's training; empty if there was none."""
    num_validation: int
    """Number of validation examples."""
    num_test: int | None = None
    """Number of test examples, if there are any."""
    is_finetuned: bool = True
    """True if the slim model was trained by itself; otherwise it has the supernet's weights."""
    takes_uniform: bool = False
    """True if Uniform is the slim model that is handed back, since it has the better score on the validation data."""

    @property
    def before(self) -> Measured:
        """The original model as it was given."""
        return self.models[0]

    @property
    def found(self) -> Measured:
        """The model with the widths that the search found."""
        return self.models[1]

    @property
    def after(self) -> Measured:
        """The slim model as it is handed back: that of the widths found, or Uniform."""
        return self.models[2] if self.takes_uniform else self.found

    @property
    def baseline(self) -> Measured | None:
        """Uniform, or None if it was not asked for."""
        return self.models[2] if len(self.models) > 2 else None

    @property
    def is_uniform_better(self) -> bool:
        """True if Uniform has the better score on the validation data. The test data choose nothing."""
        return self.baseline is not None and self.baseline.score > self.found.score


def measured_from(content: Mapping[str, Any]) -> Measured:
    """Return a model of a comparison as it was, from plain values.

    Args:
        content: The values, as JSON gives them.

    Returns:
        The model.
    """
    spread = content.get("latency_range_ms")
    return Measured(**{**content, "latency_range_ms": None if spread is None else tuple(spread)})


def gain_from(content: Mapping[str, Any]) -> Gain:
    """Return a comparison as it was, from plain values.

    Args:
        content: The values, as JSON gives them.

    Returns:
        The comparison.
    """
    return Gain(**{**content, "models": tuple(measured_from(each) for each in content["models"])})


def measure_gain(
    models: Mapping[str, nn.Module],
    space: WidthSpace,
    example_inputs: Any,
    job: Job,
    *,
    is_trained: bool,
    uniform: str,
    test: Data | None,
    place: Path,
    is_finetuned: bool = True,
    may_take_uniform: bool = False,
) -> Gain:
    """Measure and score the models, or read what an earlier call measured for the same models and data.

    Args:
        models: The models by their names in the comparison, the original first, then the slim model.
        space: The width space of the original, which prices all of them.
        example_inputs: Inputs that latencies are measured with.
        job: The data and options of the search.
        is_trained: True if the original came trained.
        uniform: A sentence about Uniform's training.
        test: Test data, or None.
        place: Directory of the slim model, which keeps the comparison.
        is_finetuned: True if the slim model was trained by itself.
        may_take_uniform: True if Uniform keeps the budget, so that it may be the slim model.

    Returns:
        The comparison.
    """
    identity = _identity(models, job, is_trained, uniform, test)
    before = read_if_there(GAIN, place)
    if before is not None and before["identity"] == identity:
        return gain_from(before["gain"])
    gain = _measured(models, space, example_inputs, job, is_trained, uniform, test)
    takes_uniform = may_take_uniform and gain.is_uniform_better
    gain = replace(gain, is_finetuned=is_finetuned, takes_uniform=takes_uniform)
    write_file(GAIN, place, {"identity": identity, "gain": asdict(gain)})
    return gain


def _measured(
    models: Mapping[str, nn.Module],
    space: WidthSpace,
    example_inputs: Any,
    job: Job,
    is_trained: bool,
    uniform: str,
    test: Data | None,
) -> Gain:
    """Measure every model."""
    latencies = _in_turns(models, example_inputs, job)
    rows: list[Measured] = []
    sizes = (0, 0)
    for name, model in models.items():
        widths = getattr(model, RECORD).widths if rows else None  # the original comes first, and may itself be slim
        score = _score(model, job.val_data, "validation data", job.metric, job.loss)
        tested = None if test is None else _score(model, test, "test data", job.metric, job.loss)
        sizes = (score[1], 0 if tested is None else tested[1])
        rows.append(
            Measured(
                name,
                int(space.flops(widths)),
                int(space.params(widths)),
                latencies[name].median,
                file_bytes(model),
                score[0],
                None if tested is None else tested[0],
                (latencies[name].low, latencies[name].high),
                widths,
            )
        )
    return Gain(metric_name(job.metric), tuple(rows), is_trained, uniform, sizes[0], sizes[1] or None)


def _score(model: nn.Module, data: Data, name: str, metric: Any, loss: str | LossFunction | None) -> tuple[float, int]:
    score = model_score(model, data, metric=metric, loss=loss, name=name)
    return score.value, score.num_examples


def _in_turns(models: Mapping[str, nn.Module], example_inputs: Any, job: Job) -> dict[str, Latency]:
    """Return the latency of each model: the medians of several rounds through all of them, pass by pass in turns."""
    rounds = [measure_latencies(list(models.values()), example_inputs, job.latency) for _ in range(ROUNDS)]
    return {
        name: Latency(*(statistics.median(values) for values in zip(*map(_times, each), strict=True)))
        for name, *each in zip(models, *rounds, strict=True)
    }


def _times(latency: Latency) -> tuple[float, float, float]:
    """Return the median and the quartiles."""
    return latency.median, latency.low, latency.high


def file_bytes(model: nn.Module) -> int:
    """Return the size of a file with the weights of a model, as `torch.save(model.state_dict(), ...)` writes it.

    Args:
        model: The model.

    Returns:
        The number of bytes.
    """
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    return buffer.tell()


def _identity(
    models: Mapping[str, nn.Module], job: Job, is_trained: bool, uniform: str, test: Data | None
) -> dict[str, Any]:
    """Return everything that a comparison depends on, as plain JSON values."""
    content = {
        "models": {name: digest_of_model(model) for name, model in models.items()},
        "validation": _fingerprint(job.val_data, "validation data"),
        "test": None if test is None else _fingerprint(test, "test data"),
        "metric": metric_name(job.metric),
        "loss": job.loss if isinstance(job.loss, str) else "own",
        "latency": job.latency.made_with(),
        "is_trained": is_trained,
        "uniform": uniform,
    }
    plain: dict[str, Any] = json.loads(json.dumps(content))
    return plain


def _fingerprint(data: Data, name: str) -> dict[str, Any]:
    """Return the length of data, where it is known, and a digest of a fixed sample."""
    examples = getattr(data, "dataset", data)
    try:
        length = len(examples) if isinstance(examples, Sized) else None
    except TypeError:  # a data set without a length
        length = None
    return {"length": length, "sample": hold_examples(data, name, num_examples=_FINGERPRINT).digest()}
