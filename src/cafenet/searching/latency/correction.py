"""Measured latencies of picked widths, and the correction of the estimate by those that miss the cap.

Smallest example: 10 ms are allowed, and a pick that is estimated at 9.9 ms takes 11 ms. It is refused, and the next
picks are made with an estimate of at most 9 ms, because 9 ms times 11 / 9.9 is 10 ms. Latencies have steps; so if the
next pick takes only 8 ms, a pick with an estimate of at most 9.5 ms is tried, half-way between the two.

Measurements are noisy, and of several picks near the cap, one that was measured too low would be kept. So a pick that
meets the cap is measured five times more, and all five must meet it, too. A pick that really takes more than the cap is
above it in at least half of its measurements, so it passes all five with a chance of at most 1 in 32, if the five are
independent and their median is right.
"""

import statistics
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cafenet.errors import BudgetError
from cafenet.searching.feasible import Feasible
from cafenet.searching.store.scored_width import Key, key_of
from cafenet.space.bins import IntArray

_STEEPEST = 0.8
"""Lower bound on a corrected cap, as a fraction of the refused estimate. On a busy machine, a measurement can be more
wrong than any estimate."""
_NEAR, _FINEST = 0.95, 0.01
"""A pick that takes at least 95% of the allowed latency is good enough, and a cap need not be known better than 1%."""
CHECKS = 5
"""Number of further measurements of a pick that met the cap once. Each of them must meet it."""


class Meter:
    """Measures the latency of picked widths and corrects the cap on the estimate."""

    def __init__(self, feasible: Feasible, measure: Callable[[IntArray], float]) -> None:
        """Start without measurements.

        Args:
            feasible: The width vectors that meet a budget with a cap on latency, and an estimate of latency among its
                costs.
            measure: Measures bins per group and returns the latency in ms, each time anew.
        """
        self.within = feasible
        """The width vectors that meet the budget with the corrected cap."""
        self.limit_ms = next(cap.limit for cap in feasible.budget.caps if cap.cost == "latency_ms")
        """The latency cap of the budget."""
        self.measured_ms: dict[Key, float] = {}
        """Measured latency by bins per group: the median of the checks of a pick that was kept, and the measurement
        above the cap of one that was refused."""
        self.cautious_ms: dict[Key, float] = {}
        """The highest measurement by bins per group, which decides."""
        self._measure = measure
        self._cap_ms = self._least_refused = self.limit_ms
        self._most_kept: float | None = None
        self._estimates: list[float] = []
        self._ratios: list[float] = []

    def keeps(self, bin_counts: IntArray) -> bool:
        """Return whether a width vector meets the latency cap in every one of several measurements.

        The first measurement above the cap ends them.

        Args:
            bin_counts: Bins per group; a vector that was judged before is not measured again.

        Returns:
            True if no measurement is above the cap.
        """
        key = key_of(bin_counts)
        if key not in self.measured_ms:
            times = self._times(bin_counts)
            is_kept = times[-1] <= self.limit_ms
            # The first of a kept pick is left out: it was the reason to look closer, and so is often too low.
            self.measured_ms[key] = statistics.median(times[1:]) if is_kept else times[-1]
            self.cautious_ms[key] = max(times)
            self._estimates.append(self._estimate_ms(bin_counts))
            self._ratios.append(self.cautious_ms[key] / self._estimates[-1])
        return self.cautious_ms[key] <= self.limit_ms

    def _times(self, bin_counts: IntArray) -> list[float]:
        """Measure a width vector until it is above the cap, but no more often than is needed to keep it."""
        times: list[float] = []
        while len(times) <= CHECKS and (not times or times[-1] <= self.limit_ms):
            times.append(self._measure(bin_counts))
        return times

    def _estimate_ms(self, bin_counts: IntArray) -> float:
        """Return the estimated latency of a width vector."""
        return float(self.within.costs["latency_ms"](self.within.bins.widths(bin_counts[None]))[0])

    def correct(self, kept: IntArray | None) -> bool:
        """Move the cap on the estimate after a round of picks.

        The cap goes down to the value at which the best refused pick would have been right. If that was too far, it
        goes up again half-way.

        Args:
            kept: The pick of this round that met the latency cap, or None if all were refused.

        Returns:
            False if nothing is left to try.
        """
        if kept is None:
            self._least_refused = self._cap_ms
        else:
            self._most_kept = self._cap_ms
            if self.cautious_ms[key_of(kept)] >= _NEAR * self.limit_ms:
                return False
        if self._most_kept is not None:
            cap_ms = (self._most_kept + self._least_refused) / 2
            is_open = self._least_refused - self._most_kept > 2 * _FINEST * self.limit_ms
        else:
            is_open = bool(self._ratios)
            cap_ms = max(self.limit_ms / min(self._ratios), _STEEPEST * max(self._estimates)) if is_open else 0.0
        return is_open and self._set(cap_ms)

    def _set(self, cap_ms: float) -> bool:
        """Set the cap on the estimate; return False if the smallest subnet exceeds it."""
        budget = self.within.budget
        caps = tuple(replace(cap, limit=cap_ms) if cap.cost == "latency_ms" else cap for cap in budget.caps)
        try:
            self.within = Feasible(self.within.bins, self.within.costs, replace(budget, caps=caps), self.within.band)
        except BudgetError:  # the smallest subnet exceeds the cap
            return False
        self._cap_ms, self._estimates, self._ratios = cap_ms, [], []
        return True

    def likely_first(self, rows: list[IntArray]) -> list[IntArray]:
        """Sort width vectors so that those under the corrected cap come first.

        Args:
            rows: Bins per group of each vector.

        Returns:
            The vectors; the order is otherwise kept.
        """
        fits = self.within.fits(np.array(rows))
        return [rows[number] for number in np.argsort(~fits, kind="stable")]
