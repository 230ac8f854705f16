"""A worker of `test_hosts`: it scores the rows of one proposal by a table, together with workers of other hosts."""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from cafenet.searching.algorithms.base import Proposal
from cafenet.searching.score_board import Contest
from cafenet.searching.store.trials import TrialStore
from tests.helpers.small_search import TableScorer, binned

BINS = binned(20, 20)


def value_of(bin_counts: np.ndarray) -> float:
    return float(bin_counts @ [1.0, 0.01])


def rows(number: int) -> np.ndarray:
    every = np.array([[first, second] for first in range(1, 21) for second in range(1, 21)], dtype=np.int64)
    return every[:number]


def work(url: str, place: Path, number: int, seconds: float, stale_seconds: float, hours: float) -> None:
    """Wait until all workers are there, then score; note what was scored here and what came out."""
    clock = time.time
    time.time = lambda: clock() + 3600 * hours  # a clock that is wrong
    host = os.uname().nodename
    store = TrialStore(url, BINS, {"weights": "a"}, stale_seconds=stale_seconds)
    scorer = TableScorer(lambda bin_counts: time.sleep(seconds) or value_of(bin_counts))
    contest = Contest(scorer, store, lambda bin_counts: {"flops": 1.0}, "search", on_scored=lambda scored: note())

    def note() -> None:
        (place / f"{host}.scored").write_text(str(len(scorer.asked)))

    (place / f"{host}.here").touch()
    while len(list(place.glob("*.here"))) < 3:
        time.sleep(0.01)
    values = contest.values(Proposal(rows(number), num_kept=5, label="rows"))
    (place / f"{host}.json").write_text(json.dumps(values.tolist()))


if __name__ == "__main__":
    url, place, *numbers = sys.argv[1:]
    work(url, Path(place), int(numbers[0]), *map(float, numbers[1:]))
