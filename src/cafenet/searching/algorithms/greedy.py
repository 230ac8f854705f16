"""Greedy search (AutoSlim's): shrink the group that hurts least, again and again, and note every budget passed."""

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
    """From full width, each step takes bins worth about `step` of the full cost from the group that hurts least.

    At the budget, exchanges (bins from one group to another) are tried while they help, at most `exchanges` times.
    """

    step: Annotated[float, Range(0, 1, is_open="both")] = 0.02
    exchanges: Count = 5

    def __post_init__(self) -> None:
        check_options(self, ScoringError)

    @property
    def name(self) -> str:
        """What results are labelled with."""
        return "greedy"

    def num_widths(self, feasible: Feasible) -> int:
        """A width for each group and step down to the budget."""
        full = float(feasible.usage(feasible.num_bins[None])[0])
        num_steps = max(1.0, (full - 1) / (self.step * full))
        return round(num_steps * feasible.num_bins.size * 0.9)

    def proposals(self, feasible: Feasible, rng: np.random.Generator) -> Proposals:
        """Shrink to the budget, then exchange."""
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
    """For each group that can shrink, the vector with the fewest bins less that saves the wanted usage (or all)."""
    usage = float(feasible.usage(current[None])[0])
    options = []
    for group in np.flatnonzero(current > 1):
        rows = np.repeat(current[None], current[group] - 1, axis=0)
        rows[:, group] = np.arange(current[group] - 1, 0, -1)
        saves = usage - feasible.usage(rows) >= wanted * 0.999
        options.append(rows[int(np.argmax(saves)) if saves.any() else len(rows) - 1])
    return np.stack(options)


def _exchanges(current: IntArray, step: float, feasible: Feasible, rng: np.random.Generator) -> IntArray:
    """For each group, the vector in which others make room for it: about `step` more of the budget goes to it."""
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
