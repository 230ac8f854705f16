"""Workers that claim widths and write scores at once: trials a second, and what a trial costs beyond its score."""

import multiprocessing
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cafenet.scoring.scorer import Score
from cafenet.searching.store.optuna_trials import OptunaTrials
from cafenet.searching.store.scored_width import ScoredWidth
from cafenet.searching.store.trials import TrialStore
from cafenet.space.bins import Bins, GroupBins

NUM_GROUPS, NUM_EXAMPLES = 25, 1000
BINS = Bins(tuple(GroupBins(f"features.{number}.conv", 64, 4, 4) for number in range(NUM_GROUPS)))
RIGHT = np.random.default_rng(0).random(NUM_EXAMPLES) < 0.7


@dataclass(frozen=True)
class Load:
    """What each worker does: score for so long, as often as fits into the time."""

    num_workers: int
    score_seconds: float
    seconds: float
    by_optuna: bool = False


def measure(storage: str | Path, load: Load, server_cpu: Any = None) -> dict[str, Any]:
    """Let forked workers, which share what was imported, work on a new study."""
    open_store(storage, load)
    context = multiprocessing.get_context("fork")
    barrier, queue = context.Barrier(load.num_workers + 1), context.Queue()
    workers = [
        context.Process(target=_work, args=(storage, load, number, barrier, queue))
        for number in range(load.num_workers)
    ]
    for worker in workers:
        worker.start()
    barrier.wait(600)
    server_before = 0.0 if server_cpu is None else server_cpu()
    found = [queue.get(timeout=load.seconds + 600) for _ in workers]
    server = 0.0 if server_cpu is None else server_cpu() - server_before
    for worker in workers:
        worker.join()
    claims, adds = (np.concatenate([each[name] for each in found]) for name in ("claims", "adds"))
    elapsed, cpu = max(each["elapsed"] for each in found), sum(each["cpu"] for each in found)
    return {
        "num_workers": load.num_workers,
        "score_seconds": load.score_seconds,
        "num_trials": len(claims),
        "trials_per_second": round(len(claims) / elapsed, 2),
        **{f"claim_ms_{q}": round(1000 * float(np.percentile(claims, q)), 2) for q in (50, 90)},
        **{f"add_ms_{q}": round(1000 * float(np.percentile(adds, q)), 2) for q in (50, 90)},
        "overhead_ms_50": round(1000 * float(np.median(claims + adds)), 2),
        "worker_cpu_ms": round(1000 * cpu / len(claims), 2),
        "server_cpu_ms": round(1000 * server / len(claims), 2),
        "load": round(os.getloadavg()[0], 1),
        "num_cores": len(os.sched_getaffinity(0)),
    }


def open_store(storage: str | Path, load: Load) -> TrialStore:
    """The study; `by_optuna` reads and writes it as Optuna does."""
    original = TrialStore._trials_of_study
    if load.by_optuna:
        TrialStore._trials_of_study = lambda self: OptunaTrials(  # type: ignore[method-assign]
            self._storage, self._study_id, self._distributions
        )
    try:
        return TrialStore(storage, BINS, {"benchmark": "store"}, is_shared=True)
    finally:
        TrialStore._trials_of_study = original  # type: ignore[method-assign]


def scored(bin_counts: np.ndarray) -> ScoredWidth:
    """A score as accuracy on some validation images gives it."""
    score = Score(0.7, 0, 1, NUM_EXAMPLES, True, 0.0, RIGHT.astype(np.float64))
    return ScoredWidth(tuple(bin_counts.tolist()), score, {"flops": 1e8, "params": 1e6}, "search", "width", 1.0, False)


def _work(storage: str | Path, load: Load, number: int, barrier: Any, queue: Any) -> None:
    """Claim, score and write until the time is over."""
    rng = np.random.default_rng(number)
    store, claims, adds = open_store(storage, load), [], []
    for _ in range(2):  # statements are compiled at their first use
        row = rng.integers(1, 16, NUM_GROUPS)
        store.add(scored(row), store.claim(row))
    barrier.wait(600)
    time.sleep(load.score_seconds * rng.random())  # workers of a real search are not in step
    start, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - start < load.seconds:
        row = rng.integers(1, 16, NUM_GROUPS)
        before = time.perf_counter()
        claim = store.claim(row)
        claimed = time.perf_counter()
        time.sleep(load.score_seconds)
        scored_at = time.perf_counter()
        if claim is not None:
            store.add(scored(row), claim)
            claims.append(claimed - before)
            adds.append(time.perf_counter() - scored_at)
    elapsed, used = time.perf_counter() - start, time.process_time() - cpu
    queue.put({"claims": np.array(claims), "adds": np.array(adds), "elapsed": elapsed, "cpu": used})
