"""Measured latencies of picks, and the estimate corrected by those that miss the cap.

Smallest example: 10 ms are allowed, and a pick that is estimated at 9.9 ms takes 11 ms. It is refused, and the next
picks are made where the estimate is at most 9 ms: times 11 / 9.9 that is 10. Latencies have steps; so if the next pick
takes 8 ms only, one is tried where the estimate is at most 9.5 ms, between the two.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cafenet.errors import BudgetError
from cafenet.searching.feasible import Feasible
from cafenet.searching.store.scored_width import Key, key_of
from cafenet.space.bins import IntArray

_STEEPEST = 0.8
"""Of what was refused, at least: on a busy machine a measurement can be off by more than any estimate is."""
_NEAR, _FINEST = 0.95, 0.01
"""A pick that takes that share of what is allowed is good enough, and so is a cap that is known to that share of it."""


class Meter:
    """What the end of a search knows of real latencies."""

    def __init__(self, feasible: Feasible, measure: Callable[[IntArray], float]) -> None:
        """measure: the latency of bins per group, in ms. feasible: has a cap on latency, and an estimate for it."""
        self.within = feasible
        """The widths under the cap as it is corrected so far."""
        self.limit_ms = next(cap.limit for cap in feasible.budget.caps if cap.cost == "latency_ms")
        self.measured_ms: dict[Key, float] = {}
        self._measure = measure
        self._cap_ms = self._least_refused = self.limit_ms
        self._most_kept: float | None = None
        self._estimates: list[float] = []
        self._ratios: list[float] = []

    def keeps(self, taken: IntArray) -> bool:
        """Whether a width keeps the cap when it is measured, which is done once."""
        key = key_of(taken)
        if key not in self.measured_ms:
            self.measured_ms[key] = self._measure(taken)
            self._estimates.append(self._estimate_ms(taken))
            self._ratios.append(self.measured_ms[key] / self._estimates[-1])
        return self.measured_ms[key] <= self.limit_ms

    def _estimate_ms(self, taken: IntArray) -> float:
        return float(self.within.costs["latency_ms"](self.within.bins.widths(taken[None]))[0])

    def correct(self, kept: IntArray | None) -> bool:
        """Move the cap after a round of picks, of which one was kept or none; False where nothing is left to be tried.

        Down to where the best of the refused ones would have been right, and up again half-way where that was too far.
        """
        if kept is None:
            self._least_refused = self._cap_ms
        else:
            self._most_kept = self._cap_ms
            if self.measured_ms[key_of(kept)] >= _NEAR * self.limit_ms:
                return False
        if self._most_kept is not None:
            cap_ms = (self._most_kept + self._least_refused) / 2
            is_open = self._least_refused - self._most_kept > 2 * _FINEST * self.limit_ms
        else:
            is_open = bool(self._ratios)
            cap_ms = max(self.limit_ms / min(self._ratios), _STEEPEST * max(self._estimates)) if is_open else 0.0
        return is_open and self._set(cap_ms)

    def _set(self, cap_ms: float) -> bool:
        budget = self.within.budget
        caps = tuple(replace(cap, limit=cap_ms) if cap.cost == "latency_ms" else cap for cap in budget.caps)
        try:
            self.within = Feasible(self.within.bins, self.within.costs, replace(budget, caps=caps), self.within.band)
        except BudgetError:  # the smallest subnet is above it
            return False
        self._cap_ms, self._estimates, self._ratios = cap_ms, [], []
        return True

    def likely_first(self, rows: list[IntArray]) -> list[IntArray]:
        """Those under the corrected cap before the others, each in the order that they came in."""
        fits = self.within.fits(np.array(rows))
        return [rows[number] for number in np.argsort(~fits, kind="stable")]
