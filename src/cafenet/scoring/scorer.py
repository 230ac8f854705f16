"""Max-max (paper, `maxmax`): the score of a width is that of its best candidate, with batch norm recalibrated for it.

The plain way scores every candidate on all validation examples. The fast way races: all candidates see a small part of
the examples, recalibrated on a quarter of the calibration examples; the winner, recalibrated on all of them, sees
growing parts. A width that falls clearly behind the bar (a good width found before, compared on the same examples) is
dropped on the way, from the first part on.
"""

import zlib
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cafenet.common.options import Positive, PositiveInt, PositiveShare, Range, check_options
from cafenet.common.user_code import UserPart
from cafenet.errors import ScoringError
from cafenet.modules.batch_norm import has_statistics
from cafenet.modules.batches import Batch, LossFunction
from cafenet.modules.calling import training_mode
from cafenet.modules.tensors import tensors_of
from cafenet.scoring.examples import Data, Examples, hold_examples, in_content_order
from cafenet.scoring.metrics import (
    Metric,
    chance_accuracy,
    check_labels,
    expect_function,
    is_per_example,
    metric_by_name,
    metric_name,
    metric_values,
)
from cafenet.scoring.recalibration import PreparedSubnet
from cafenet.space.bins import IntArray
from cafenet.space.layout import Subnet
from cafenet.supernet.supernet import Supernet

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ScoringConfig:
    """Options that decide how carefully widths are scored.

    Example:
        >>> import cafenet
        >>> cafenet.ScoringConfig(max_examples=2000).race
        True
    """

    candidates: Literal["best", "mean"] = "best"
    """Candidates that the score of a width speaks of: "best" is that of the best candidate (max-max, as in the paper),
    "mean" the mean over all candidates, which is less noisy but scores each of them on all examples. The slim model is
    the best candidate in both cases."""
    race: bool = True
    """If True, candidates race and hopeless widths are dropped early. If False, every candidate is scored on all
    examples."""
    first_share: PositiveShare = 1 / 32
    """Share of the validation examples that all candidates see."""
    min_examples: PositiveInt = 64
    """Smallest number of examples on which a decision is based."""
    drop_below: Positive = 1.0
    """Number of standard errors below the bar at which a width is dropped."""
    calibration_size: PositiveInt = 512
    """Number of training examples on which batch norm is recalibrated."""
    max_examples: PositiveInt = 10_000
    """Largest number of validation examples on which widths are scored; a fixed random sample of a larger set."""
    batch_size: Annotated[int, Range(2)] = 128
    """Number of examples per batch in recalibration (whose statistics are averaged over batches) and in scoring."""

    def __post_init__(self) -> None:
        check_options(self, ScoringError)


@dataclass(frozen=True, eq=False)
class Score:
    """The score of one width, complete or estimated."""

    value: float
    """Metric of the best candidate, or its mean over the candidates. For a dropped width, it is the value of the bar
    plus the difference seen so far."""
    candidate: int
    """Number of the best candidate."""
    num_candidates: int
    """Number of candidates of the width."""
    num_examples: int
    """Number of validation examples that the best candidate was scored on."""
    is_complete: bool
    """False if the width was dropped before it had seen all examples."""
    standard_error: float
    """Standard error of the value as an estimate of the metric on all validation examples; 0 if the score is
    complete."""
    values: FloatArray | None = field(repr=False)
    """Value of each validation example in a complete score, for later comparisons; None for a metric of one number."""


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
        """Read the data into memory and check the metric.

        Args:
            supernet: The trained supernet.
            train: Training data, from which examples for the recalibration of batch norm are taken.
            validation: Validation data that widths are scored on.
            metric: "accuracy", "negative_loss", "perplexity", "token_accuracy" or a function of (output, target);
                higher is better, and the score of perplexity is minus its logarithm.
            loss: The loss that the supernet was trained with. With "cross_entropy", targets of two dimensions are class
                probabilities.
            config: Options of scoring.

        Raises:
            ScoringError: If the data or the metric cannot be used.
        """
        self.config = ScoringConfig() if config is None else config
        self.supernet = supernet
        self.metric_name = metric_name(metric)
        self._metric: Metric = (
            metric_by_name(metric, loss, supernet.model)
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
        """Name of the metric as scores depend on it: accuracy of class probabilities differs from accuracy of
        attributes."""
        self.chance = chance_accuracy(self.validation.batch[1], loss) if metric == "accuracy" else None
        """Accuracy of always answering the most frequent label; None for other metrics."""

    def score(self, bin_counts: IntArray, bar: Score | None = None, *, exact: bool = False) -> Score:
        """Score one width vector; it may be dropped early if it is clearly below the bar.

        Args:
            bin_counts: Bins per group.
            bar: Score of a good width found before.
            exact: If True, every candidate is scored on all examples, whatever the config says.

        Returns:
            The score.

        Raises:
            ScoringError: If an output is NaN, or the metric is not finite.
        """
        with training_mode(self.supernet.model, False):
            candidates = self.candidates(bin_counts)
            if self.supernet.sharing.averages or (self.config.candidates == "mean" and len(candidates) > 1):
                return self._averaged(candidates)
            if exact or not self.config.race:
                return self._best([self._whole(candidate) for candidate in candidates])
            return self._raced(candidates, bar)

    def candidates(self, bin_counts: IntArray) -> list[Subnet]:
        """Return the subnets that stand for a width vector; randomly drawn ones are the same at every call.

        Args:
            bin_counts: Bins per group.

        Returns:
            The candidates.
        """
        seed = zlib.crc32(np.ascontiguousarray(bin_counts, dtype=np.int64).tobytes())
        generator = torch.Generator().manual_seed(seed)
        return self.supernet.sharing.candidates(self.supernet.binned, bin_counts, generator)

    def subnet(self, bin_counts: IntArray, candidate: int) -> Subnet:
        """Return the subnet that a score belongs to.

        Args:
            bin_counts: Bins per group.
            candidate: Number of the candidate, as in the score.

        Returns:
            The subnet.
        """
        return self.candidates(bin_counts)[candidate]

    def _whole(self, candidate: Subnet) -> FloatArray:
        """Return the values of one candidate on all validation examples."""
        runner = _Runner(0, PreparedSubnet(self.supernet, candidate), self)
        runner.calibrate(len(self._calibration))
        return self._values(runner.prepared, 0, self.validation.size)

    def _best(self, values: list[FloatArray]) -> Score:
        """Return the score of the best candidate."""
        best = int(np.argmax([each.mean() for each in values]))
        return self._complete(values[best], best, len(values))

    def _averaged(self, candidates: list[Subnet]) -> Score:
        """Return the mean score of all candidates. If all of them are trained, the first one stands for them."""
        values = [self._whole(candidate) for candidate in candidates]
        best = 0 if self.supernet.sharing.averages else int(np.argmax([each.mean() for each in values]))
        return self._complete(np.mean(values, axis=0), best, len(values))

    def _complete(self, values: FloatArray, candidate: int, num_candidates: int, bar: Score | None = None) -> Score:
        """Make a complete score; values that may serve as a bar are kept, in the precision of the store."""
        values = values.astype(np.float32).astype(np.float64)
        value = float(values.mean())
        kept = values if self.is_per_example and (bar is None or value >= bar.value) else None
        return Score(value, candidate, num_candidates, self.validation.size, True, 0.0, kept)

    def _raced(self, candidates: list[Subnet], bar: Score | None) -> Score:
        """Race the candidates, then score the winner on growing parts of the examples."""
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
        """Return the estimated score of a width that is clearly below the bar on the examples seen, or None if it is
        not."""
        assert bar is not None
        assert bar.values is not None
        num_seen = len(values)
        if num_seen < 2 or num_seen == self.validation.size:  # no error can be estimated, or nothing is left to see
            return None
        difference = values - bar.values[:num_seen]
        share_unseen = 1 - num_seen / self.validation.size  # correction for a sample of a finite set
        error = float(difference.std(ddof=1)) * (share_unseen / num_seen) ** 0.5
        if difference.mean() + self.config.drop_below * error >= 0:
            return None
        value = bar.value + float(difference.mean())
        return Score(value, runner.number, len(candidates), num_seen, False, error, None)

    def _race(self, candidates: list[Subnet]) -> "_Runner":
        """Return the candidate that is best on growing parts; the better 40% continue each time with more calibration
        batches."""
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
        """Return the number of examples that all candidates see."""
        wanted = max(self.config.min_examples, round(self.config.first_share * self.validation.size))
        return min(wanted, self.validation.size)

    def _rungs(self) -> list[int]:
        """Return the points of comparison with the bar: an eighth, a quarter, half and 3/4 of the examples,
        then all."""
        size = self.validation.size
        shares = [size // 8, size // 4, size // 2, size * 3 // 4]
        return [*(stop for stop in shares if stop >= self.config.min_examples), size]

    def _values(self, prepared: PreparedSubnet, start: int, stop: int) -> FloatArray:
        """Return the metric on the examples from `start` to `stop`: one value each, or one number for all."""
        batches = self.validation.batches(start, stop, self.config.batch_size)
        if self.is_per_example:
            parts = [metric_values(self._metric, _output(prepared, inputs), target) for inputs, target in batches]
            return _finite(torch.cat(parts))
        outputs = [_output(prepared, inputs) for inputs, _ in batches]
        _, target = next(self.validation.batches(start, stop, stop - start))
        return _finite(metric_values(self._metric, torch.cat(outputs), target).reshape(1))

    def _check_metric(self, is_by_name: bool) -> bool:
        """Return whether the metric gives one value per example; a metric by name needs labels among the outputs."""
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
        """Average the statistics over the first calibration batches, continuing from those seen before."""
        if self._scorer._recalibrates and num_batches > self._num_batches:
            batches = self._scorer._calibration[self._num_batches : num_batches]
            self.prepared.recalibrate(batches, goes_on=self._num_batches > 0)
        self._num_batches = max(num_batches, self._num_batches)


def _even_batches(examples: Examples, batch_size: int) -> list[Batch]:
    """Return all examples in batches of nearly equal size."""
    return list(examples.batches(0, examples.size, batch_size))


def _memory_format(supernet: Supernet) -> torch.memory_format:
    """Return the memory format of the weights; images in the same format are faster on a CPU."""
    images = [parameter for parameter in supernet.parameters() if parameter.ndim == 4 and parameter.shape[1] > 1]
    is_last = images and all(each.is_contiguous(memory_format=torch.channels_last) for each in images)
    return torch.channels_last if is_last else torch.contiguous_format


def _output(prepared: PreparedSubnet, inputs: Any) -> Any:
    """Return a subnet's output; NaN is an error, because the largest of some NaN would still be taken for a class."""
    output = prepared.run(inputs)
    if any(bool(tensor.isnan().any()) for tensor in tensors_of(output)):
        raise ScoringError("outputs must be numbers, but some are NaN; the supernet's weights or the data are at fault")
    return output


def _finite(values: Tensor) -> FloatArray:
    """Return values as an array; values that are not finite are an error."""
    result: FloatArray = values.detach().double().cpu().numpy()
    if not np.isfinite(result).all():
        raise ScoringError(
            "a metric must be finite, but is not for some examples; the supernet's weights or the metric are at fault"
        )
    return result
