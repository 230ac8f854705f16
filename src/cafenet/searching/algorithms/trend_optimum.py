"""The width vectors under a budget that are best by a trend: the sum of weight times log width is largest.

Exchanges of bins between two groups climb most of the way from uniform widths. If costs multiply the widths of several
groups, the rest takes changes of several groups at once: such vectors are bred from the best so far, thousands per
round, because their costs are cheap to compute. Smallest example: layers of 4, 4, 4 and 4 channels in a row cost 48. To
widen the second to 6 at that cost takes 3 channels from the first, or only 1 from each of its neighbours.
"""

from collections.abc import Iterator
from itertools import chain

import numpy as np

from cafenet.scoring.scorer import FloatArray
from cafenet.searching.feasible import Feasible
from cafenet.space.bins import IntArray

_STEPS = (1, 2, 4, 8, 16)
"""Numbers of bins that an exchange moves."""
_NUM_PROMISING = 100
"""Number of ways to widen a group, and of ways to narrow one, that are combined with each other; the best for their
cost."""
_NUM_BEST = 20
"""Largest number of vectors that are returned."""
_NUM_PARENTS, _NUM_CHILDREN, _ROUNDS = 50, 2000, 60
_CHANGES = (0.5, 0.03)
"""Standard deviation of the change of log widths in bred vectors, in the first round and in the last."""
_NUM_CHANGED = (2, 4, 8)
"""Expected numbers of groups that a bred vector changes, if its parent has as many."""


def best_of_trend(feasible: Feasible, worths: FloatArray, farthest: float) -> IntArray:
    """Return the width vectors under the budget with the largest weighted sum of log widths, best first.

    Args:
        feasible: The width vectors that meet the budget.
        worths: Weight of each group's log width.
        farthest: Largest factor by which a group may deviate from uniform scaling.

    Returns:
        Bins per group, at most 20 rows.
    """
    uniform = feasible.uniform()
    low, high = _limits(feasible, uniform, farthest)
    best = _Best(feasible, worths, uniform[None])
    for rows in _climb(best, low, high):
        best.add(rows)
    if (low < high).any():
        for rows in chain(_breed(best, low, high), _climb(best, low, high)):
            best.add(rows)
    return best.rows[:_NUM_BEST]


class _Best:
    """The best rows so far, best first."""

    def __init__(self, feasible: Feasible, worths: FloatArray, rows: IntArray) -> None:
        self._feasible, self._worths = feasible, worths
        self.rows, self.values = rows, self._value(rows)

    def _value(self, rows: IntArray) -> FloatArray:
        """Return the weighted sum of log widths of each row."""
        values: FloatArray = np.log(self._feasible.bins.widths(rows)) @ self._worths
        return values

    def rates(self, rows: IntArray) -> FloatArray:
        """Return the gain or loss of each row against the best one, divided by the share of the budget that it takes or
        saves."""
        before = self._feasible.usage(self.rows[:1])
        rates: FloatArray = (self._value(rows) - self.values[0]) / abs(self._feasible.usage(rows) - before + 1e-12)
        return rates

    def add(self, rows: IntArray) -> None:
        """Take in the rows that fit and are good enough."""
        rows = rows[self._feasible.fits(rows)]
        values = self._value(rows)
        if len(self.values) >= _NUM_PARENTS:
            is_good = values > self.values[-1]
            rows, values = rows[is_good], values[is_good]
        rows, first = np.unique(np.concatenate([self.rows, rows]), axis=0, return_index=True)
        values = np.concatenate([self.values, values])[first]
        order = np.argsort(-values, kind="stable")[:_NUM_PARENTS]
        self.rows, self.values = rows[order], values[order]


def _climb(best: _Best, low: IntArray, high: IntArray) -> Iterator[IntArray]:
    """Yield exchanges of the best row until none is better."""
    value = -np.inf
    while best.values[0] > value:
        value = best.values[0]
        yield _exchanges(best, low, high)


def _breed(best: _Best, low: IntArray, high: IntArray) -> Iterator[IntArray]:
    """Yield vectors with several groups changed at once, by less each round; equal best rows give equal vectors."""
    rng = np.random.default_rng(0)
    for change in np.geomspace(*_CHANGES, _ROUNDS):
        parents = best.rows[rng.integers(len(best.rows), size=_NUM_CHILDREN)]
        is_changed = rng.random(parents.shape) < rng.choice(_NUM_CHANGED, size=(_NUM_CHILDREN, 1)) / parents.shape[1]
        factors, rounding = np.exp(change * rng.standard_normal(parents.shape)), rng.uniform(-1, 1, parents.shape)
        children = np.where(is_changed, parents * factors + rounding, parents)
        yield np.clip(np.rint(children), low, high).astype(np.int64)


def _limits(feasible: Feasible, uniform: IntArray, farthest: float) -> tuple[IntArray, IntArray]:
    """Return the fewest and the most bins of each group, half a bin wider because uniform widths were rounded
    to bins."""
    if farthest == 1:
        return uniform, uniform
    smallest, width, next_width = (feasible.bins.widths(row) for row in (uniform * 0 + 1, uniform, uniform + 1))
    size = next_width - width
    low = np.ceil(((width - size / 2) / farthest - smallest) / size) + 1
    high = np.floor(((width + size / 2) * farthest - smallest) / size) + 1
    return np.maximum(low, 1).astype(np.int64), np.minimum(high, feasible.num_bins).astype(np.int64)


def _exchanges(best: _Best, low: IntArray, high: IntArray) -> IntArray:
    """Return variants of the best row with more bins in one group and fewer in another or in none."""
    bin_counts = best.rows[0]
    steps = np.kron(np.array(_STEPS)[:, None], np.eye(len(bin_counts), dtype=np.int64))
    more, fewer = bin_counts + steps, bin_counts - steps
    more, fewer = more[(more <= high).all(axis=1)], fewer[(fewer >= low).all(axis=1)]
    more, fewer = (rows[np.argsort(-best.rates(rows), kind="stable")[:_NUM_PROMISING]] for rows in (more, fewer))
    both = (more[:, None] + fewer - bin_counts).reshape(-1, len(bin_counts))
    return np.concatenate([more, both])
