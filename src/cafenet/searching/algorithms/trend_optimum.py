"""The widths under a budget that are best by a trend: whose logarithms, times what each group is worth, add up to most.

Exchanges of bins between two groups climb most of the way from uniform widths. Where costs multiply groups, the rest
takes changes of several at once: these are bred from the best so far, thousands a round, since pricing them is cheap.
Smallest example: layers of 4, 4, 4 and 4 channels in a row cost 48; to widen the second to 6 within that takes 3 from
the first, or only 1 from each of its neighbours.
"""

from collections.abc import Iterator
from itertools import chain

import numpy as np

from cafenet.scoring.scorer import FloatArray
from cafenet.searching.feasible import Feasible
from cafenet.space.bins import IntArray

_STEPS = (1, 2, 4, 8, 16)
_NUM_PROMISING = 100
"""Ways to widen a group, and to narrow another, that are tried with each other; the best for what they cost."""
_NUM_BEST = 20
_NUM_PARENTS, _NUM_CHILDREN, _ROUNDS = 50, 2000, 60
_CHANGES = (0.5, 0.03)
"""By how much bred widths differ from their parents in the first round and in the last, as logarithms."""
_NUM_CHANGED = (2, 4, 8)
"""Groups of a parent, about, where it has as many."""


def best_of_trend(feasible: Feasible, worths: FloatArray, farthest: float) -> IntArray:
    """The widths under the budget whose logarithms are worth most, best first.

    farthest: how many times narrower or wider than uniform ones they may be.
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
        values: FloatArray = np.log(self._feasible.bins.widths(rows)) @ self._worths
        return values

    def rates(self, rows: IntArray) -> FloatArray:
        """What each row gains or loses against the best one, for each share of the budget that it takes or saves."""
        before = self._feasible.usage(self.rows[:1])
        rates: FloatArray = (self._value(rows) - self.values[0]) / abs(self._feasible.usage(rows) - before + 1e-12)
        return rates

    def add(self, rows: IntArray) -> None:
        """Take in those that fit and are good enough."""
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
    """Exchanges of the best row, until none is better."""
    value = -np.inf
    while best.values[0] > value:
        value = best.values[0]
        yield _exchanges(best, low, high)


def _breed(best: _Best, low: IntArray, high: IntArray) -> Iterator[IntArray]:
    """Several groups changed at once, by less each round; the same ones for the same best rows."""
    rng = np.random.default_rng(0)
    for change in np.geomspace(*_CHANGES, _ROUNDS):
        parents = best.rows[rng.integers(len(best.rows), size=_NUM_CHILDREN)]
        is_changed = rng.random(parents.shape) < rng.choice(_NUM_CHANGED, size=(_NUM_CHILDREN, 1)) / parents.shape[1]
        factors, rounding = np.exp(change * rng.standard_normal(parents.shape)), rng.uniform(-1, 1, parents.shape)
        children = np.where(is_changed, parents * factors + rounding, parents)
        yield np.clip(np.rint(children), low, high).astype(np.int64)


def _limits(feasible: Feasible, uniform: IntArray, farthest: float) -> tuple[IntArray, IntArray]:
    """The fewest and the most bins of each group, with half a bin more, since uniform widths were rounded to bins."""
    if farthest == 1:
        return uniform, uniform
    smallest, width, next_width = (feasible.bins.widths(row) for row in (uniform * 0 + 1, uniform, uniform + 1))
    size = next_width - width
    low = np.ceil(((width - size / 2) / farthest - smallest) / size) + 1
    high = np.floor(((width + size / 2) * farthest - smallest) / size) + 1
    return np.maximum(low, 1).astype(np.int64), np.minimum(high, feasible.num_bins).astype(np.int64)


def _exchanges(best: _Best, low: IntArray, high: IntArray) -> IntArray:
    """Of the best row: some bins more for one group, and some fewer for another or none."""
    taken = best.rows[0]
    steps = np.kron(np.array(_STEPS)[:, None], np.eye(len(taken), dtype=np.int64))
    more, fewer = taken + steps, taken - steps
    more, fewer = more[(more <= high).all(axis=1)], fewer[(fewer >= low).all(axis=1)]
    more, fewer = (rows[np.argsort(-best.rates(rows), kind="stable")[:_NUM_PROMISING]] for rows in (more, fewer))
    both = (more[:, None] + fewer - taken).reshape(-1, len(taken))
    return np.concatenate([more, both])
