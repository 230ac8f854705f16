"""What a search costs beside its scores when there are many: proposing, the surrogate, and the replay."""

import time
from typing import Any

import numpy as np

from benchmarks.store.workers import BINS, NUM_GROUPS
from cafenet.scoring.scorer import Score
from cafenet.searching.algorithms.base import Algorithm
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.algorithms.random_search import RandomSearch
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.budget import Budget, Cap
from cafenet.searching.feasible import Feasible
from cafenet.searching.score_board import Contest
from cafenet.searching.store.trials import TrialStore


class Table:
    """Scores by a sum over the groups."""

    chance = None

    def __init__(self) -> None:
        self._weights = np.random.default_rng(0).random(NUM_GROUPS)

    def score(self, bin_counts: np.ndarray, bar: Score | None = None, *, exact: bool = False) -> Score:
        return Score(float(self._weights @ np.log(bin_counts)), 0, 1, 1000, True, 0.0, None)


def algorithms(number: int) -> dict[str, Algorithm]:
    """The algorithms, asked for so many widths."""
    return {
        "trend": Trend(samples=number),
        "random": RandomSearch(samples=number),
        "evolution": Evolution(population=number // 20, iterations=20),
    }


def measure_algorithm(name: str, number: int) -> dict[str, Any]:
    """A search of so many widths whose scores are free, and the same again from its scores."""
    limit = 64.0 * NUM_GROUPS / 2
    feasible = Feasible(
        BINS, {"flops": lambda widths: widths.sum(axis=1).astype(float)}, Budget("50%", (Cap("flops", limit),))
    )
    store = TrialStore(None, BINS, {})
    row: dict[str, Any] = {"algorithm": name, "num_widths": number}
    for kind in ("first", "replay"):
        contest = Contest(Table(), store, lambda bin_counts: {"flops": 1.0}, "search")
        start, thinking = time.process_time(), 0.0
        proposals = algorithms(number)[name].proposals(feasible, np.random.default_rng(0))
        before = time.process_time()
        proposal = next(proposals)
        try:
            while True:
                thinking += time.process_time() - before
                values = contest.values(proposal)
                before = time.process_time()
                proposal = proposals.send(values)
        except StopIteration as end:
            if callable(end.value):
                end.value(feasible)
            thinking += time.process_time() - before
        row[f"{kind}_seconds"] = round(time.process_time() - start, 2)
        row["algorithm_seconds"] = round(thinking, 2)
        row["num_seen"] = len(contest.seen)
    return row
