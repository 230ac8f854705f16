"""The cost of a candidate beyond its evaluation: the real driver and journal, with a scorer that returns at once."""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cafenet
from benchmarks.common.results_file import Results
from cafenet.scoring.scorer import Score
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.budget import parse_budget
from cafenet.searching.feasible import Feasible
from cafenet.searching.score_board import Contest
from cafenet.searching.store.trials import TrialStore
from cafenet.space.bins import IntArray, flops_sensitive_bins

NUM_EXAMPLES = 5000
"""Number of validation examples; their values are kept with every score that may serve as a bar, as in a search."""


class InstantScorer:
    """A smooth score of width shares, best at 70% of every group."""

    chance = None

    def __init__(self, num_bins: IntArray) -> None:
        self._num_bins = num_bins
        self._values = np.random.default_rng(0).random((64, NUM_EXAMPLES))
        self.seconds = 0.0
        self.num_scored = 0

    def score(self, bin_counts: IntArray, bar: Score | None = None, *, exact: bool = False) -> Score:
        start = time.perf_counter()
        value = 1 - float(np.square(bin_counts / self._num_bins - 0.7).mean())
        values = None
        if bar is None or value >= bar.value:
            values = (self._values[self.num_scored % 64] < value).astype(np.float64)
        self.num_scored += 1
        self.seconds += time.perf_counter() - start
        return Score(value, 0, 3, NUM_EXAMPLES, True, 0.0, values)


def measure_overhead(results: Results, num_runs: int) -> None:
    """Searches of 2,000 widths of MobileNetV2 at 224, some more each time until enough ran on a quiet machine."""
    model = cafenet.load_model("torchvision:mobilenet_v2")
    space = cafenet.trace(model, torch.randn(1, 3, 224, 224), verify=False)
    for _ in range(num_runs):
        rows = results.rows("overhead")
        if sum(map(is_quiet, rows.values())) >= num_runs:
            return
        row = one_search(space, len(rows))
        print(f"overhead, run {len(rows)}: {row}", flush=True)
        results.add("overhead", f"run {len(rows)}", row)


def is_quiet(row: dict[str, Any]) -> bool:
    """Whether no more processes wanted to run than there are cores; else a run's time is that of waiting for one."""
    return bool(row["load"] <= row.get("num_cores", 2))


def one_search(space: cafenet.WidthSpace, seed: int) -> dict[str, Any]:
    """Milliseconds per candidate of a whole search, its parts, and the journal's size."""
    bins = flops_sensitive_bins(space)
    feasible = Feasible(bins, {"flops": space.flops}, parse_budget("50%", space))
    scorer = InstantScorer(bins.num_bins)

    def costs(bin_counts: IntArray) -> dict[str, float]:
        widths = bins.widths(bin_counts[None])
        return {"flops": float(space.flops(widths)[0]), "params": float(space.params(widths)[0])}

    with tempfile.TemporaryDirectory() as directory:
        journal = Path(directory) / "trials.journal"
        start, cpu = time.perf_counter(), time.process_time()
        contest = Contest(scorer, TrialStore(journal, bins, {"benchmark": "overhead"}), costs, "search")
        proposing = run(contest, feasible, seed)
        total, cpu = time.perf_counter() - start, time.process_time() - cpu
        size = journal.stat().st_size
        start = time.perf_counter()
        TrialStore(journal, bins, {"benchmark": "overhead"})
        reopened = time.perf_counter() - start
    overhead = total - scorer.seconds
    seconds = {"overhead": overhead, "cpu": cpu, "proposing": proposing, "storing": overhead - proposing}
    return {
        "num_groups": len(bins.groups),
        "num_trials": scorer.num_scored,
        **{f"ms_{part}": round(1000 * each / scorer.num_scored, 3) for part, each in seconds.items()},
        "journal_mb": round(size / 1e6, 2),
        "reopen_seconds": round(reopened, 2),
        "num_cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
    }


def run(contest: Contest, feasible: Feasible, seed: int) -> float:
    """Search to the end; the seconds spent on proposing."""
    proposals = Evolution().proposals(feasible, np.random.default_rng((seed, 0)))
    start = time.perf_counter()
    proposal = next(proposals)
    seconds = time.perf_counter() - start
    while True:
        values = contest.values(proposal)
        start = time.perf_counter()
        try:
            proposal = proposals.send(values)
        except StopIteration:
            return seconds
        finally:
            seconds += time.perf_counter() - start
