"""Measured costs of picked widths (latency, file size), and the correction of the estimate by those that miss the cap.

Smallest example: 10 ms are allowed, and a pick that is estimated at 9.9 ms takes 11 ms. It is refused, and the next
picks are made with an estimate of at most 9 ms, because 9 ms times 11 / 9.9 is 10 ms. Latencies have steps; so if the
next pick takes only 8 ms, a pick with an estimate of at most 9.5 ms is tried, half-way between the two.

Measurements are noisy, and of several picks near the cap, one that was measured too low would be kept. So a pick that
meets the cap is measured five times more, and all five must meet it, too. A pick that really takes more than the cap is
above it in at least half of its measurements, so it passes all five with a chance of at most 1 in 32, if the five are
independent and their median is right. The size of a file is the same each time, so it is read once.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cafenet.errors import BudgetError
from cafenet.searching.budget import UNITS, CostName
from cafenet.searching.feasible import Feasible
from cafenet.searching.store.scored_width import Key, key_of
from cafenet.space.bins import IntArray

_STEEPEST = 0.8
"""Lower bound on a corrected cap, as a fraction of the refused estimate. On a busy machine, a measurement can be more
wrong than any estimate."""
_NEAR, _FINEST = 0.95, 0.01
"""A pick that takes at least 95% of the allowed latency is good enough, and a cap need not be known better than 1%."""
CHECKS = 5
"""Number of further measurements of a pick that met the cap on latency once. Each of them must meet it."""


class Meter:
    """Measures one cost of picked widths and corrects the cap on its estimate."""

    def __init__(
        self,
        feasible: Feasible,
        measure: Callable[[IntArray], float],
        *,
        cost: CostName = "latency_ms",
        checks: int = CHECKS,
    ) -> None:
        """Start without measurements.

        Args:
            feasible: The width vectors that meet a budget with a cap on the cost, and an estimate of it among its
                costs.
            measure: Measures bins per group and returns the cost, each time anew.
            cost: The cost.
            checks: Number of further measurements of a pick that met the cap once.
        """
        self.within = feasible
        """The width vectors that meet the budget with the corrected cap."""
        self.limit = next(cap.limit for cap in feasible.budget.caps if cap.cost == cost)
        """The cap of the budget."""
        self.measured: dict[Key, float] = {}
        """Measured cost by bins per group: the median of the checks of a pick that was kept, and the measurement
        above the cap of one that was refused."""
        self.cautious: dict[Key, float] = {}
        """The highest measurement by bins per group, which decides."""
        self.cost: CostName = cost
        """The cost that is measured."""
        self._measure, self._checks = measure, checks
        self._cap = self._least_refused = self.limit
        self._most_kept: float | None = None
        self._refused: list[tuple[float, float]] = []

    def keeps(self, bin_counts: IntArray) -> bool:
        """Return whether a width vector meets the cap in every one of several measurements.

        The first measurement above the cap ends them.

        Args:
            bin_counts: Bins per group; a vector that was judged before is not measured again.

        Returns:
            True if no measurement is above the cap.
        """
        key = key_of(bin_counts)
        if key not in self.measured:
            times = self._times(bin_counts)
            is_kept = times[-1] <= self.limit
            # The first of a kept pick is left out: it was the reason to look closer, and so is often too low.
            self.measured[key] = statistics.median(times[1:] or times) if is_kept else times[-1]
            self.cautious[key] = max(times)
            if not is_kept or self.cautious[key] > self.limit:
                estimate = self._estimate(bin_counts)
                self._refused.append((estimate, self.cautious[key] / estimate))
        return self.cautious[key] <= self.limit

    def _times(self, bin_counts: IntArray) -> list[float]:
        """Measure a width vector until it is above the cap, but no more often than is needed to keep it."""
        times: list[float] = []
        while len(times) <= self._checks and (not times or times[-1] <= self.limit):
            times.append(self._measure(bin_counts))
        return times

    def _estimate(self, bin_counts: IntArray) -> float:
        """Return the estimated cost of a width vector."""
        return float(self.within.costs[self.cost](self.within.bins.widths(bin_counts[None]))[0])

    def correct(self, kept: IntArray | None) -> bool:
        """Move the cap on the estimate after a round of picks.

        The cap goes down to the value at which the best refused pick would have been right. If that was too far, it
        goes up again half-way.

        Args:
            kept: The pick of this round that met the cap, or None if all were refused.

        Returns:
            False if nothing is left to try.
        """
        if kept is None:
            self._least_refused = self._cap
        else:
            self._most_kept = self._cap
            if self.is_near(kept):
                return False
        if self._most_kept is not None:
            cap = (self._most_kept + self._least_refused) / 2
            is_open = self._least_refused - self._most_kept > 2 * _FINEST * self.limit
        else:
            is_open = self.has_refused
            cap = 0.0
            if is_open:
                estimates, ratios = zip(*self._refused, strict=True)
                cap = max(self.limit / min(ratios), _STEEPEST * max(estimates))
        return is_open and self._set(cap)

    def is_near(self, bin_counts: IntArray) -> bool:
        """Return whether a vector that was kept uses the cap well enough.

        Args:
            bin_counts: Bins per group.

        Returns:
            True if its highest measurement is at least 95% of the cap.
        """
        return self.cautious[key_of(bin_counts)] >= _NEAR * self.limit

    def _set(self, limit: float) -> bool:
        """Set the cap on the estimate; return False if the smallest subnet exceeds it."""
        budget = self.within.budget
        caps = tuple(replace(cap, limit=limit) if cap.cost == self.cost else cap for cap in budget.caps)
        try:
            self.within = Feasible(self.within.bins, self.within.costs, replace(budget, caps=caps), self.within.band)
        except BudgetError:  # the smallest subnet exceeds the cap
            return False
        self._cap, self._refused = limit, []
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

    @property
    def has_refused(self) -> bool:
        """True if a pick was above the cap since it was corrected."""
        return bool(self._refused)

    def says(self, bin_counts: IntArray) -> str:
        """Describe a measurement for a message.

        Args:
            bin_counts: Bins per group of a vector that was judged.

        Returns:
            The cost and the cap: "takes 3.1 ms, where 3 ms are allowed".
        """
        unit, digits = UNITS[self.cost], "7" if self.cost == "file_bytes" else "3"
        return (
            f"takes {self.measured[key_of(bin_counts)]:,.{digits}g} {unit}, where {self.limit:,.{digits}g} {unit} are"
        )


class Meters:
    """Several meters of one budget with a cap on each of their costs, for example a latency and the size of a file."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        """Hold the meters.

        Args:
            meters: Meters of the same width vectors, those that take least time first.
        """
        self._meters = tuple(meters)

    @property
    def within(self) -> Feasible:
        """The width vectors that meet the budget with all corrected caps."""
        first = self._meters[0].within
        if len(self._meters) == 1:
            return first
        limits = [[cap.limit for cap in meter.within.budget.caps] for meter in self._meters]
        caps = tuple(
            replace(cap, limit=min(each))
            for cap, each in zip(first.budget.caps, zip(*limits, strict=True), strict=True)
        )
        return Feasible(first.bins, first.costs, replace(first.budget, caps=caps), first.band)

    @property
    def measured(self) -> set[Key]:
        """Bins per group of all vectors that were judged."""
        return {key for meter in self._meters for key in meter.measured}

    def keeps(self, bin_counts: IntArray) -> bool:
        """Return whether a width vector meets every cap; the first that it misses ends the measurements.

        Args:
            bin_counts: Bins per group.

        Returns:
            True if all caps are met.
        """
        return all(meter.keeps(bin_counts) for meter in self._meters)

    def correct(self, kept: IntArray | None) -> bool:
        """Move the caps on the estimates after a round of picks, as each meter does.

        Args:
            kept: The pick of this round that met the caps, or None if all were refused.

        Returns:
            False if nothing is left to try.
        """
        if kept is not None:
            if any(meter.is_near(kept) for meter in self._meters):
                return False
            return any([meter.correct(kept) for meter in self._meters])  # a list, so that all are corrected
        refusing = [meter for meter in self._meters if meter.has_refused]
        return bool(refusing) and all([meter.correct(None) for meter in refusing])

    def likely_first(self, rows: list[IntArray]) -> list[IntArray]:
        """Sort width vectors so that those under the corrected caps come first.

        Args:
            rows: Bins per group of each vector.

        Returns:
            The vectors; the order is otherwise kept.
        """
        fits = self.within.fits(np.array(rows))
        return [rows[number] for number in np.argsort(~fits, kind="stable")]

    def says(self, bin_counts: IntArray) -> str:
        """Describe the measurement that refused a vector.

        Args:
            bin_counts: Bins per group of a vector that was refused.

        Returns:
            The cost and the cap that it misses.
        """
        key = key_of(bin_counts)
        return next(meter.says(bin_counts) for meter in reversed(self._meters) if key in meter.measured)

    def costs(self, bin_counts: tuple[int, ...]) -> dict[str, float]:
        """Return the measured costs of a vector that was kept.

        Args:
            bin_counts: Bins per group.

        Returns:
            The costs by name.
        """
        return {meter.cost: meter.measured[bin_counts] for meter in self._meters}
