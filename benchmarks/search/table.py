"""A table of trained networks as a stand-in evaluator: every width vector of a small ResNet, trained three times.

The table (channel-bench) has 7 groups of 4 widths each: a key of 7 digits 1 to 4 counts quarters of the channels, and
its row gives the accuracies of three trainings, FLOPs and params. Searching costs a look-up, so hundreds of searches
can be compared.
"""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common.places import CHANNEL_BENCH
from cafenet.scoring.scorer import FloatArray
from cafenet.searching.algorithms.base import Algorithm
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.budget import Budget, Cap
from cafenet.searching.feasible import Feasible
from cafenet.space.bins import Bins, GroupBins, IntArray

CHANNELS = (256, 256, 256, 512, 512, 512, 512)
CHECKPOINTS = (10, 20, 40, 80, 120, 160, 200, 400)
"""Numbers of evaluations at which the pick so far is judged."""
MODES = ("noise-free", "noisy")


@dataclass(frozen=True, eq=False)
class Table:
    """Accuracies in percent and FLOPs by width, at position `number` of a width."""

    accuracies: FloatArray
    """Accuracies of the three trainings, of shape (widths, 3)."""
    flops: FloatArray

    def number(self, bin_counts: IntArray) -> IntArray:
        """The position of each row of quarters."""
        return (np.asarray(bin_counts) - 1) @ 4 ** np.arange(len(CHANNELS))[::-1]

    def searched(self, mode: str) -> FloatArray:
        """Accuracies that a search sees: the mean, or one training."""
        return self.accuracies.mean(axis=1) if mode == "noise-free" else self.accuracies[:, 0]

    def judged(self, mode: str) -> FloatArray:
        """Accuracies that judge its pick: the mean of all, or of the other two trainings."""
        return self.accuracies.mean(axis=1) if mode == "noise-free" else self.accuracies[:, 1:].mean(axis=1)

    def feasible(self, percent: int) -> Feasible:
        """The widths of at most that share of the full network's FLOPs."""
        groups = [GroupBins(f"group{number}", width, width // 4, width // 4) for number, width in enumerate(CHANNELS)]
        quarter = np.array(CHANNELS) // 4
        costs = {"flops": lambda widths: self.flops[self.number(widths // quarter)]}
        budget = Budget(f"{percent}%", (Cap("flops", percent / 100 * float(self.flops[-1])),))
        return Feasible(Bins(tuple(groups)), costs, budget)


def read_table(path: Path = CHANNEL_BENCH) -> Table:
    """The table, in the order of its keys."""
    with gzip.open(path) as file:
        rows = json.load(file)
    keys = sorted(rows)
    if len(keys) != 4 ** len(CHANNELS):
        raise SystemExit(f"{path} must hold {4 ** len(CHANNELS)} widths, but holds {len(keys)}")
    accuracies = np.array([rows[key]["acc"] for key in keys])
    return Table(accuracies, np.array([rows[key]["flops"] for key in keys], dtype=np.float64))


class Track:
    """The best pick so far of a search, judged at the checkpoints."""

    def __init__(self, table: Table, mode: str, limit: float) -> None:
        self._searched, self._judged, self._fits = table.searched(mode), table.judged(mode), table.flops <= limit
        self._best: int | None = None
        self.num_evaluations = 0
        self._picks: list[int | None] = []

    def add(self, number: int) -> float:
        """Evaluate a width: what the search is told."""
        value = float(self._searched[number])
        if self._fits[number] and (self._best is None or value > self._searched[self._best]):
            self._best = number
        self.skip()
        return value

    def skip(self) -> None:
        """An evaluation that brings no pick."""
        self._picks.append(self._best)
        self.num_evaluations += 1

    def values(self, most: int) -> list[float | None]:
        """Judged accuracy of the pick at every checkpoint up to `most`; None where nothing fitted yet.

        A search that ended before keeps its pick.
        """
        at = [self._picks[min(stop, len(self._picks)) - 1] for stop in CHECKPOINTS if stop <= most]
        return [None if pick is None else round(float(self._judged[pick]), 3) for pick in at]


def search_table(algorithm: Algorithm, table: Table, mode: str, percent: int, seed: int, most: int) -> Track:
    """Run one of our algorithms on the table; no width is evaluated twice, and every one it scores counts."""
    feasible = table.feasible(percent)
    track = Track(table, mode, feasible.budget.caps[0].limit)
    proposals = algorithm.proposals(feasible, np.random.default_rng((seed, 0)))
    known: dict[int, float] = {}
    try:
        proposal = next(proposals)
        while track.num_evaluations < most:
            values = [_evaluated(number, known, track) for number in table.number(proposal.bin_counts).tolist()]
            proposal = proposals.send(np.array(values))
    except StopIteration:
        pass
    return track


def settle_on_table(table: Table, mode: str, percent: int, seed: int, most: int) -> list[float | None]:
    """The judged accuracy of what a search by trend settles on, a search of its own for every checkpoint."""
    feasible, found = table.feasible(percent), []
    for stop in (stop for stop in CHECKPOINTS if stop <= most):
        proposals = Trend(stop).proposals(feasible, np.random.default_rng((seed, 0)))
        try:
            proposal = next(proposals)
            while True:
                proposal = proposals.send(table.searched(mode)[table.number(proposal.bin_counts)])
        except StopIteration as end:
            found.append(round(float(table.judged(mode)[table.number(end.value[0])]), 3))
    return found


def _evaluated(number: int, known: dict[int, float], track: Track) -> float:
    if number not in known:
        known[number] = track.add(number)
    return known[number]


def oracle(table: Table, mode: str, percent: int) -> float:
    """The best judged accuracy within the budget."""
    return float(table.judged(mode)[_fitting(table, percent)].max())


def best_seen(table: Table, mode: str, percent: int) -> float:
    """The judged accuracy of the pick that a search of all widths would make: what noise alone costs."""
    fitting = _fitting(table, percent)
    return float(table.judged(mode)[fitting[np.argmax(table.searched(mode)[fitting])]])


def num_fitting(table: Table, percent: int) -> tuple[int, int]:
    """Number of widths that meet a budget, and of those that lie in the band under it that our searches look at."""
    fitting, low = _fitting(table, percent), table.feasible(percent).band[0]
    return len(fitting), int((table.flops[fitting] >= low * percent / 100 * float(table.flops[-1])).sum())


def _fitting(table: Table, percent: int) -> IntArray:
    return np.flatnonzero(table.flops <= percent / 100 * float(table.flops[-1]))
