"""Greedy search (that of AutoSlim): shrink the group that costs the least score, step by step, down to the budget."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from cafenet.common.options import Count, Range, check_options
from cafenet.errors import ScoringError
from cafenet.searching.algorithms.base import Proposal, Proposals
from cafenet.searching.feasible import Feasible
from cafenet.space.bins import IntArray


@dataclass(frozen=True)
class Greedy:
    """Greedy search from full width down to the budget.

    Each step removes bins worth about `step` of the full cost from the group whose loss lowers the score least. At the
    budget, exchanges of bins between groups are tried as long as they raise the score.

    Example:
        >>> import cafenet
        >>> cafenet.Greedy(step=0.05, exchanges=0).name
        'greedy'
    """

    step: Annotated[float, Range(0, 1, is_open="both")] = 0.02
    """Share of the full cost that one step removes."""
    exchanges: Count = 5
    """Largest number of exchanges after the budget is reached."""

    def __post_init__(self) -> None:
        check_options(self, ScoringError)

    @property
    def name(self) -> str:
        """Short name that results are labelled with."""
        return "greedy"

    def num_widths(self, feasible: Feasible) -> int:
        """Return about one width vector per group and step down to the budget.

        Args:
            feasible: The width vectors that meet the budget.

        Returns:
            The expected number of scored vectors.
        """
        full = float(feasible.usage(feasible.num_bins[None])[0])
        num_steps = max(1.0, (full - 1) / (self.step * full))
        return round(num_steps * feasible.num_bins.size * 0.9)

    def proposals(self, feasible: Feasible, rng: np.random.Generator) -> Proposals:
        """Propose smaller vectors until the budget is met, then exchanges.

        Args:
            feasible: The width vectors that meet the budget.
            rng: Source of all random numbers.

        Yields:
            One proposal per step and per exchange.
        """
        full = float(feasible.usage(feasible.num_bins[None])[0])
        current = feasible.num_bins.copy()
        number = 0
        while not feasible.fits(current[None])[0]:
            options = _smaller(current, self.step * full, feasible)
            number += 1
            values = yield Proposal(options, num_kept=1, is_own_contest=True, label=f"step {number}")
            current = options[int(np.argmax(values))]
        best = float((yield Proposal(current[None], num_kept=1, is_own_contest=True, label="budget met"))[0])
        for number in range(1, self.exchanges + 1):
            options = _exchanges(current, self.step, feasible, rng)
            if len(options) == 0:
                return
            values = yield Proposal(options, num_kept=1, is_own_contest=True, label=f"exchange {number}")
            if float(values.max()) <= best:
                return
            current, best = options[int(np.argmax(values))], float(values.max())


def _smaller(current: IntArray, wanted: float, feasible: Feasible) -> IntArray:
    """For each group that can shrink, return the vector with the fewest removed bins that saves the wanted usage."""
    usage = float(feasible.usage(current[None])[0])
    options = []
    for group in np.flatnonzero(current > 1):
        rows = np.repeat(current[None], current[group] - 1, axis=0)
        rows[:, group] = np.arange(current[group] - 1, 0, -1)
        saves = usage - feasible.usage(rows) >= wanted * 0.999
        options.append(rows[int(np.argmax(saves)) if saves.any() else len(rows) - 1])
    return np.stack(options)


def _exchanges(current: IntArray, step: float, feasible: Feasible, rng: np.random.Generator) -> IntArray:
    """For each group, return the vector in which other groups make room for it: it gets about `step` more of the
    budget."""
    options = []
    for group in np.flatnonzero(current < feasible.num_bins):
        rows = np.repeat(current[None], feasible.num_bins[group] - current[group], axis=0)
        rows[:, group] = np.arange(current[group] + 1, feasible.num_bins[group] + 1)
        grows = feasible.usage(rows) - feasible.usage(current[None]) >= step
        row = rows[int(np.argmax(grows)) if grows.any() else len(rows) - 1]
        keep = np.zeros(row.shape, dtype=bool)
        keep[group] = True
        options.append(feasible.repair(row[None], rng, keep[None])[0])
    distinct = np.unique(np.stack(options), axis=0) if options else np.empty((0, current.size), dtype=np.int64)
    changed: IntArray = distinct[(distinct != current).any(axis=1)]
    return changed
