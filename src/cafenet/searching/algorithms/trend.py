"""Search by trend: score widths about the budget, fit their scores, settle on the best width of the fit.

A score of one width is noisy, and the best of many is the luckiest. But accuracy follows the widths closely in a simple
way: score = a + sum of b_g log(width_g), with a worth b_g > 0 of each group. Some hundred scores about the budget say
what each group is worth; the width that maximises the sum under the budget needs no luck. Smallest example: two groups
that cost the same a channel, worth 2 and 1, and a budget of 9 channels: 6 and 3.

The law holds about the widths that were scored. So the fit says where to go from uniform widths, and scores of a few
widths on the way say how far: not beyond a cliff, a score that lies far below that of uniform widths. A little below is
no sign against a width, since a supernet that is trained on balanced widths serves these best.
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
"""Share of the widths' own variance that is added to it."""
_LEAST_WORTH = 0.1
"""Of the mean worth: wider never hurts, whatever noise says."""
_WAY = (1.0, 1.5, 2.0, 3.0, 4.0)
"""How many times narrower or wider than uniform ones the widths on the way may be, about, up to `Trend.farthest`."""
_LEAST_USED = 0.6
"""Of the budget, by widths that are scored."""
_CLIFF = 3.0
"""Below the score of uniform widths, as a multiple of the fit's own error."""


@dataclass(frozen=True)
class Trend:
    """Score `samples` widths about the budget, their shares `spread` apart, and take the best width of their trend."""

    samples: PositiveInt = 300
    """In all stages together."""
    spread: Positive = 0.3
    farthest: Annotated[float, Range(1)] = 4.0
    """How many times narrower or wider than in uniform widths a group may become, about, in all stages together."""

    def __post_init__(self) -> None:
        check_options(self, ScoringError)

    def of_stages(self, num_stages: int) -> "Trend":
        """What each of some stages does: two of them score 150 widths each and go twice from uniform ones."""
        return replace(self, samples=math.ceil(self.samples / num_stages), farthest=self.farthest ** (1 / num_stages))

    @property
    def _way(self) -> list[float]:
        return [*(each for each in _WAY if each < self.farthest), self.farthest]

    @property
    def name(self) -> str:
        """What results are labelled with."""
        return "trend"

    def num_widths(self, feasible: Feasible) -> int:
        """As many as asked for and those on the way, or all that there are."""
        return min(self.samples + len(self._way), feasible.bins.search_space_size)

    def proposals(self, feasible: Feasible, rng: np.random.Generator) -> SettledProposals:
        """One proposal, none of which may be dropped; another on the way that the fit shows; settles on its end."""
        taken = distinct(sample_balanced(feasible, self.samples, self.spread, rng))
        values = yield Proposal(taken, num_kept=len(taken), label="width")
        logarithms = np.log(feasible.bins.widths(taken))
        worths = fit_worths(logarithms, values)
        error = float(np.std(values - logarithms @ worths))
        liked = {tuple(best_of_trend(feasible, worths, farthest)[0]): farthest for farthest in self._way}
        on_the_way = np.array(list(liked), dtype=np.int64)
        values = yield Proposal(on_the_way, num_kept=len(on_the_way), is_own_contest=True, label="on the way")
        is_cliff = values < values[0] - _CLIFF * error
        last = int(np.argmax(is_cliff)) - 1 if is_cliff.any() else len(values) - 1
        farthest = list(liked.values())[last]
        return lambda within: best_of_trend(within, worths, farthest)


def sample_balanced(feasible: Feasible, n: int, spread: float, rng: np.random.Generator) -> IntArray:
    """n vectors that use various parts of the budget, the logarithms of the groups' shares this far apart.

    Were all of them as wide as the budget allows, they would tell what a group is worth beside another, but not what
    all of them are worth together, and the fit would overdo the differences.
    """
    num_bins = feasible.num_bins
    rows = np.empty((n, num_bins.size), dtype=np.int64)
    for number in range(n):
        near = balanced_rows(num_bins, spread * rng.standard_normal(num_bins.size))
        fits = feasible.usage(near) <= rng.uniform(_LEAST_USED, 1.0)
        rows[number] = near[np.argmax(fits)] if fits.any() else 1  # the smallest subnet always fits
    return rows


def fit_worths(logarithms: FloatArray, values: FloatArray) -> FloatArray:
    """What each group's logarithm adds to the score: a ridge regression, none far below the mean."""
    centred = logarithms - logarithms.mean(axis=0)
    variance = float(centred.var(axis=0).mean())
    if variance == 0:
        return np.ones(logarithms.shape[1])
    ridge = _RIDGE * len(values) * variance * np.eye(logarithms.shape[1])
    worths: FloatArray = np.linalg.solve(centred.T @ centred + ridge, centred.T @ (values - values.mean()))
    mean = float(worths.mean())
    return np.maximum(worths, _LEAST_WORTH * mean) if mean > 0 else np.ones_like(worths)
