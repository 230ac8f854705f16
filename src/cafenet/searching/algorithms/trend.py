"""Search by trend: score widths around the budget, fit a simple law to the scores, take the best width of the law.

The score of one width is noisy, and the best of many scores is the luckiest. However, accuracy closely follows a simple
law of the widths: score = a + sum of b_g log(width_g), with a weight b_g > 0 for each group. A few hundred scores
around the budget determine these weights, and the width vector that maximises the sum under the budget needs no luck.
Smallest example: two groups that cost the same per channel, with weights 2 and 1 and a budget of 9 channels, get 6 and
3.

The law holds near the widths that were scored. The fit therefore gives the direction away from uniform widths, and the
scores of a few widths along that direction decide how far to go: not beyond a cliff, which is a score far below that of
uniform widths. A score that is only a little lower is no argument against a width, because a supernet that was trained
on balanced widths favours those.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from cafenet.common.options import Positive, PositiveInt, Range, check_options
from cafenet.errors import ScoringError
from cafenet.scoring.scorer import FloatArray
from cafenet.searching.algorithms.base import Proposal, SettledProposals, distinct
from cafenet.searching.algorithms.trend_optimum import best_of_trend
from cafenet.searching.feasible import Feasible
from cafenet.space.bins import IntArray, balanced_rows

_RIDGE = 0.05
"""Strength of the ridge penalty, as a fraction of the variance of the log widths."""
_LEAST_WORTH = 0.1
"""Lower bound on a group's weight, as a fraction of the mean weight. Keeps noise from making a wider group look
harmful."""
_WAY = (1.0, 1.5, 2.0, 3.0, 4.0)
"""Largest factors by which the widths along the direction deviate from uniform widths, up to `Trend.farthest`."""
_LEAST_USED = 0.6
"""Minimum fraction of the budget that sampled widths use."""
_CLIFF = 3.0
"""Smallest drop below the score of uniform widths that counts as a cliff, as a multiple of the error of the fit."""


@dataclass(frozen=True)
class Trend:
    """Search by trend: score widths around the budget, fit a law to the scores and take the best width of the law.

    Example:
        >>> import cafenet
        >>> cafenet.Trend(samples=100).name
        'trend'
    """

    samples: PositiveInt = 300
    """Number of width vectors to score, over all stages."""
    spread: Positive = 0.3
    """Standard deviation of the logarithms of the groups' shares in the scored widths."""
    farthest: Annotated[float, Range(1)] = 4.0
    """Largest factor, over all stages, by which a group may deviate from uniform scaling."""
    trust: Annotated[float, Range(0, 1)] = 1.0
    """Share of the differences between the groups' weights that is believed. Scores speak of short trainings, which
    favour some groups, such as residual streams, more than long ones do. With 0 all groups have the same weight."""

    def __post_init__(self) -> None:
        check_options(self, ScoringError)

    def of_stages(self, num_stages: int) -> "Trend":
        """Divide the search among several stages.

        Args:
            num_stages: Number of stages.

        Returns:
            The search of one stage. With 300 samples and a factor of 4, each of two stages scores 150 widths and
            deviates from uniform scaling by a factor of at most 2.
        """
        return replace(self, samples=math.ceil(self.samples / num_stages), farthest=self.farthest ** (1 / num_stages))

    @property
    def _way(self) -> list[float]:
        """The factors along the direction, in rising order; the last one is `farthest`."""
        return [*(each for each in _WAY if each < self.farthest), self.farthest]

    @property
    def name(self) -> str:
        """Short name that results are labelled with."""
        return "trend"

    def num_widths(self, feasible: Feasible) -> int:
        """Return the number of samples plus the widths along the direction, or the size of a smaller search space.

        Args:
            feasible: The width vectors that meet the budget.

        Returns:
            The expected number of scored vectors.
        """
        return min(self.samples + len(self._way), feasible.bins.search_space_size)

    def proposals(self, feasible: Feasible, rng: np.random.Generator) -> SettledProposals:
        """Propose the sampled widths, then widths along the direction of the fit.

        Args:
            feasible: The width vectors that meet the budget.
            rng: Source of all random numbers.

        Yields:
            Two proposals; no vector of the first may be dropped early.

        Returns:
            A function that gives the best width vectors of the fit under a budget, best first.
        """
        bin_counts = distinct(sample_balanced(feasible, self.samples, self.spread, rng))
        values = yield Proposal(bin_counts, num_kept=len(bin_counts), label="width")
        logarithms = np.log(feasible.bins.widths(bin_counts))
        worths = drawn_together(fit_worths(logarithms, values), self.trust)
        error = float(np.std(values - logarithms @ worths))
        liked = {tuple(best_of_trend(feasible, worths, farthest)[0]): farthest for farthest in self._way}
        on_the_way = np.array(list(liked), dtype=np.int64)
        values = yield Proposal(on_the_way, num_kept=len(on_the_way), is_own_contest=True, label="on the way")
        is_cliff = values < values[0] - _CLIFF * error
        last = int(np.argmax(is_cliff)) - 1 if is_cliff.any() else len(values) - 1
        farthest = list(liked.values())[last]
        return lambda within: best_of_trend(within, worths, farthest)


def sample_balanced(feasible: Feasible, n: int, spread: float, rng: np.random.Generator) -> IntArray:
    """Draw width vectors that use different shares of the budget and are balanced between the groups.

    If all vectors were as wide as the budget allows, their scores would tell what one group is worth compared with
    another, but not what all groups are worth together, and the fit would exaggerate the differences.

    Args:
        feasible: The width vectors that meet the budget.
        n: Number of vectors.
        spread: Standard deviation of the logarithms of the groups' shares.
        rng: Source of random numbers.

    Returns:
        Bins per group, shape (n, groups).
    """
    num_bins = feasible.num_bins
    rows = np.empty((n, num_bins.size), dtype=np.int64)
    for number in range(n):
        near = balanced_rows(num_bins, spread * rng.standard_normal(num_bins.size))
        fits = feasible.usage(near) <= rng.uniform(_LEAST_USED, 1.0)
        rows[number] = near[np.argmax(fits)] if fits.any() else 1  # the smallest subnet always fits
    return rows


def fit_worths(logarithms: FloatArray, values: FloatArray) -> FloatArray:
    """Fit the weight of each group's log width in the score by ridge regression, with no weight far below the mean.

    Args:
        logarithms: Logarithms of the widths, one width vector per row.
        values: Their scores.

    Returns:
        One weight per group; all ones if the scores show no positive trend.
    """
    centred = logarithms - logarithms.mean(axis=0)
    variance = float(centred.var(axis=0).mean())
    if variance == 0:
        return np.ones(logarithms.shape[1])
    ridge = _RIDGE * len(values) * variance * np.eye(logarithms.shape[1])
    worths: FloatArray = np.linalg.solve(centred.T @ centred + ridge, centred.T @ (values - values.mean()))
    mean = float(worths.mean())
    return np.maximum(worths, _LEAST_WORTH * mean) if mean > 0 else np.ones_like(worths)


def drawn_together(worths: FloatArray, trust: float) -> FloatArray:
    """Move the weights of all groups towards their mean.

    Args:
        worths: One weight per group.
        trust: Share of each weight's distance from the mean that is kept, between 0 and 1.

    Returns:
        The weights. Smallest example: weights of 3 and 1 become 2.5 and 1.5 with a trust of 0.5.
    """
    return trust * worths + (1 - trust) * float(worths.mean())
