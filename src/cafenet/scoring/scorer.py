"""Max-max (paper, `maxmax`): a width's score is its best candidate's, with batch norm recalibrated for that subnet.

The plain way scores every candidate on all validation examples. The fast way, ours, races: all candidates on a small
part of the examples, recalibrated on a quarter of the calibration examples; the winner, recalibrated on all of them, on
growing parts. A width that falls clearly behind the bar (a good width found before, compared on the same examples) is
dropped on the way, from the first part on.
"""

import zlib
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cafenet.common.options import Positive, PositiveInt, PositiveShare, Range, check_options
from cafenet.common.user_code import UserPart
from cafenet.errors import ScoringError
from cafenet.modules.batches import Batch, LossFunction
from cafenet.modules.calling import tensors_of, training_mode
from cafenet.scoring.examples import Data, Examples, hold_examples, in_content_order
from cafenet.scoring.metrics import (
    Metric,
    chance_accuracy,
    check_labels,
    expect_function,
    is_per_example,
    metric_by_name,
    metric_name,
)
from cafenet.scoring.recalibration import PreparedSubnet, has_statistics
from cafenet.space.bins import IntArray
from cafenet.space.layout import Subnet
from cafenet.supernet.supernet import Supernet

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ScoringConfig:
    """How carefully widths are scored."""

    race: bool = True
    """Race candidates and drop hopeless widths; False scores every candidate on everything."""
    first_share: PositiveShare = 1 / 32
    """Share of the validation examples that all candidates see."""
    min_examples: PositiveInt = 64
    """Smallest number of examples that anything is decided on."""
    drop_below: Positive = 1.0
    """A width is dropped when it is that many standard errors below the bar."""
    calibration_size: PositiveInt = 512
    """Training examples that batch norm is recalibrated on."""
    max_examples: PositiveInt = 10_000
    """Validation examples that widths are scored on, a fixed random sample of a larger set."""
    batch_size: Annotated[int, Range(2)] = 128
    """Examples in a batch of recalibration (its statistics are averaged over batches) and of scoring."""

    def __post_init__(self) -> None:
        check_options(self, ScoringError)


@dataclass(frozen=True, eq=False)
class Score:
    """What is known of a width."""

    value: float
    """The best candidate's metric; of a dropped width, the bar's plus the difference seen so far."""
    candidate: int
    num_candidates: int
    num_examples: int
    is_complete: bool
    """False where the width was dropped."""
    standard_error: float
    """Of the value, as an estimate of the metric on all validation examples; 0 when it is complete."""
    values: FloatArray | None = field(repr=False)
    """A complete score's value of every validation example, for later comparisons; None for a metric of one number."""


class Scorer:
    """Scores widths of a trained supernet on validation data held in memory."""

    def __init__(
        self,
        supernet: Supernet,
        train: Data,
        validation: Data,
        *,
        metric: str | Metric = "accuracy",
        loss: str | LossFunction | None = None,
        config: ScoringConfig | None = None,
    ) -> None:
        """loss: what the supernet learned; with `cross_entropy`, targets of two dimensions are class probabilities."""
        self.config = ScoringConfig() if config is None else config
        self.supernet = supernet
        self.metric_name = metric_name(metric)
        self._metric: Metric = (
            metric_by_name(metric, loss)
            if isinstance(metric, str)
            else UserPart(expect_function(metric), "the metric", "the scoring of widths")
        )
        layout: dict[str, Any] = {"device": supernet.device, "memory_format": _memory_format(supernet)}
        most, size = self.config.max_examples, self.config.calibration_size
        self.validation = in_content_order(hold_examples(validation, "validation data", num_examples=most, **layout))
        self.calibration = hold_examples(train, "training data", num_examples=size, **layout)
        self._calibration = [inputs for inputs, _ in _even_batches(self.calibration, self.config.batch_size)]
        self._recalibrates = has_statistics(supernet.model)
        self.is_per_example = self._check_metric(is_by_name=isinstance(metric, str))
        target = self.validation.batch[1]
        is_soft = isinstance(target, Tensor) and target.ndim == 2
        self.scored_by = metric_name(self._metric) if is_soft and isinstance(metric, str) else self.metric_name
        """The metric as scores depend on it: that of class probabilities is another than that of attributes."""
        self.chance = chance_accuracy(self.validation.batch[1], loss) if metric == "accuracy" else None

    def score(self, taken: IntArray, bar: Score | None = None, *, exact: bool = False) -> Score:
        """The score of a width vector (bins per group); it may be dropped when it is clearly below the bar.

        exact: every candidate on everything, whatever the config says.
        """
        with training_mode(self.supernet.model, False):
            candidates = self.candidates(taken)
            if self.supernet.pattern.averages:
                return self._averaged(candidates)
            if exact or not self.config.race:
                return self._best([self._whole(candidate) for candidate in candidates])
            return self._raced(candidates, bar)

    def candidates(self, taken: IntArray) -> list[Subnet]:
        """The subnets that stand for a width; those that are drawn are the same each time."""
        seed = zlib.crc32(np.ascontiguousarray(taken, dtype=np.int64).tobytes())
        generator = torch.Generator().manual_seed(seed)
        return self.supernet.pattern.candidates(self.supernet.binned, taken, generator)

    def subnet(self, taken: IntArray, candidate: int) -> Subnet:
        """The subnet that a score stands for."""
        return self.candidates(taken)[candidate]

    def _whole(self, candidate: Subnet) -> FloatArray:
        runner = _Runner(0, PreparedSubnet(self.supernet, candidate), self)
        runner.calibrate(len(self._calibration))
        return self._values(runner.prepared, 0, self.validation.size)

    def _best(self, values: list[FloatArray]) -> Score:
        best = int(np.argmax([each.mean() for each in values]))
        return self._complete(values[best], best, len(values))

    def _averaged(self, candidates: list[Subnet]) -> Score:
        values = np.mean([self._whole(candidate) for candidate in candidates], axis=0)
        return self._complete(values, 0, len(candidates))

    def _complete(self, values: FloatArray, candidate: int, num_candidates: int, bar: Score | None = None) -> Score:
        """Values are kept where they may serve as a bar, in the precision that the store keeps."""
        values = values.astype(np.float32).astype(np.float64)
        value = float(values.mean())
        kept = values if self.is_per_example and (bar is None or value >= bar.value) else None
        return Score(value, candidate, num_candidates, self.validation.size, True, 0.0, kept)

    def _raced(self, candidates: list[Subnet], bar: Score | None) -> Score:
        runner = self._race(candidates)
        is_compared = self.is_per_example and bar is not None and bar.values is not None
        values = runner.values
        if is_compared and len(candidates) > 1 and (dropped := self._dropped(runner, values, bar, candidates)):
            return dropped
        runner.calibrate(len(self._calibration))
        values = np.empty(0)
        for stop in self._rungs() if is_compared else [self.validation.size]:
            values = np.concatenate([values, self._values(runner.prepared, len(values), stop)])
            is_last = stop == self.validation.size
            if not is_last and (dropped := self._dropped(runner, values, bar, candidates)):
                return dropped
        return self._complete(values, runner.number, len(candidates), bar)

    def _dropped(
        self, runner: "_Runner", values: FloatArray, bar: Score | None, candidates: list[Subnet]
    ) -> Score | None:
        """What is known of a width that is clearly below the bar on the examples seen; None if it is not."""
        assert bar is not None
        assert bar.values is not None
        num_seen = len(values)
        if num_seen < 2 or num_seen == self.validation.size:  # no error can be estimated, or all has been seen
            return None
        difference = values - bar.values[:num_seen]
        share_unseen = 1 - num_seen / self.validation.size  # what was seen is a part of what it stands for
        error = float(difference.std(ddof=1)) * (share_unseen / num_seen) ** 0.5
        if difference.mean() + self.config.drop_below * error >= 0:
            return None
        value = bar.value + float(difference.mean())
        return Score(value, runner.number, len(candidates), num_seen, False, error, None)

    def _race(self, candidates: list[Subnet]) -> "_Runner":
        """The candidate that is best on growing parts; the better 40% go on each time, recalibrated on more batches."""
        alive = [_Runner(number, PreparedSubnet(self.supernet, each), self) for number, each in enumerate(candidates)]
        stop, num_batches = self._first_stop(), max(1, len(self._calibration) // 4)
        while len(alive) > 1:
            for runner in alive:
                runner.calibrate(num_batches)
                runner.values = self._values(runner.prepared, 0, stop)
            alive.sort(key=lambda runner: (-float(runner.values.mean()), runner.number))
            alive = alive[: max(1, round(0.4 * len(alive)))]
            stop, num_batches = min(2 * stop, self.validation.size), min(2 * num_batches, len(self._calibration))
        return alive[0]

    def _first_stop(self) -> int:
        wanted = max(self.config.min_examples, round(self.config.first_share * self.validation.size))
        return min(wanted, self.validation.size)

    def _rungs(self) -> list[int]:
        """Where a width is compared with the bar: an eighth, a quarter, half and 3/4 of the examples, then all."""
        size = self.validation.size
        shares = [size // 8, size // 4, size // 2, size * 3 // 4]
        return [*(stop for stop in shares if stop >= self.config.min_examples), size]

    def _values(self, prepared: PreparedSubnet, start: int, stop: int) -> FloatArray:
        """The metric of the examples start .. stop: one value each, or one number for all."""
        batches = self.validation.batches(start, stop, self.config.batch_size)
        if self.is_per_example:
            parts = [torch.as_tensor(self._metric(_output(prepared, inputs), target)) for inputs, target in batches]
            return _finite(torch.cat(parts))
        outputs = [_output(prepared, inputs) for inputs, _ in batches]
        _, target = next(self.validation.batches(start, stop, stop - start))
        return _finite(torch.as_tensor(self._metric(torch.cat(outputs), target)).reshape(1))

    def _check_metric(self, is_by_name: bool) -> bool:
        """Whether the metric gives a value for each example; one by name needs labels among the outputs."""
        num_examples = min(8, self.validation.size)
        inputs, target = next(self.validation.batches(0, num_examples, num_examples))
        with training_mode(self.supernet.model, False):
            output = PreparedSubnet(self.supernet, self.supernet.full()).run(inputs)
        if is_by_name:
            check_labels(output, self.validation.batch[1], "validation data")
        return is_per_example(self._metric, output, target, num_examples)


class _Runner:
    """A candidate in a race: how far it was recalibrated, and its last values."""

    def __init__(self, number: int, prepared: PreparedSubnet, scorer: Scorer) -> None:
        self.number, self.prepared, self.values = number, prepared, np.empty(0)
        self._scorer, self._num_batches = scorer, 0

    def calibrate(self, num_batches: int) -> None:
        """Average the statistics over the first calibration batches, going on from those seen before."""
        if self._scorer._recalibrates and num_batches > self._num_batches:
            batches = self._scorer._calibration[self._num_batches : num_batches]
            self.prepared.recalibrate(batches, goes_on=self._num_batches > 0)
        self._num_batches = max(num_batches, self._num_batches)


def _even_batches(examples: Examples, batch_size: int) -> list[Batch]:
    return list(examples.batches(0, examples.size, batch_size))


def _memory_format(supernet: Supernet) -> torch.memory_format:
    """Images are laid out as the weights are, which a CPU convolves faster."""
    images = [parameter for parameter in supernet.parameters() if parameter.ndim == 4 and parameter.shape[1] > 1]
    is_last = images and all(each.is_contiguous(memory_format=torch.channels_last) for each in images)
    return torch.channels_last if is_last else torch.contiguous_format


def _output(prepared: PreparedSubnet, inputs: Any) -> Any:
    """A subnet's output; NaN is an error, because the largest of some NaN is still a class."""
    output = prepared.run(inputs)
    if any(bool(tensor.isnan().any()) for tensor in tensors_of(output)):
        raise ScoringError("outputs must be numbers, but some are NaN; the supernet's weights or the data are at fault")
    return output


def _finite(values: Tensor) -> FloatArray:
    result: FloatArray = values.detach().double().cpu().numpy()
    if not np.isfinite(result).all():
        raise ScoringError(
            "a metric must be finite, but is not for some examples; the supernet's weights or the metric are at fault"
        )
    return result
