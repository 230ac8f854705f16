"""Scoring widths of a trained supernet: racing against the plain way, and two workers against one."""

import hashlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import cafenet.scoring.recalibration
import cafenet.scoring.scorer
from benchmarks.common.results_file import Results
from benchmarks.search.network import Trained, trained_supernet
from cafenet.scoring.scorer import Score, Scorer, ScoringConfig
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.result import FoundWidths
from cafenet.searching.search_config import SearchConfig
from cafenet.searching.width_search import WidthSearch
from cafenet.space.bins import IntArray

BUDGET = "50%"
WAYS = {"race": ScoringConfig(), "plain": ScoringConfig(race=False)}


class TimedScorer(Scorer):
    """Remembers when the search was over: at the first exact score of a finalist."""

    def start(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()
        self.num_widths, self.is_over = 0, False

    def score(self, bin_counts: IntArray, bar: Score | None = None, *, exact: bool = False) -> Score:
        """Score one width as the scorer does."""
        if exact and not self.is_over:
            self.wall, self.cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
            self.is_over = True
        self.num_widths += not exact
        return super().score(bin_counts, bar, exact=exact)


def compare_scoring(results: Results, cache: Path, seeds: Sequence[int], *, quick: bool) -> None:
    """Search in both ways, seed by seed; which one comes first alternates."""
    known, code = results.rows("supernet"), scoring_code()
    missing = [seed for seed in seeds if known.get(f"seed {seed}", {}).get("code") != code]
    if not missing:
        return
    trained = trained_supernet(cache, quick=quick)
    scorers = {
        way: TimedScorer(trained.supernet, trained.train, trained.validation, config=c) for way, c in WAYS.items()
    }
    results.add("network", "small_cnn", _facts(trained))
    for seed in missing:
        order = sorted(WAYS, reverse=bool(seed % 2))
        runs = {way: timed_search(scorers[way], seed, iterations=2 if quick else 5) for way in order}
        values = {way: run.pop("values") for way, run in runs.items()}
        difference = values["race"] - values["plain"]
        runs["standard_error"] = float(difference.std(ddof=1) / len(difference) ** 0.5)
        runs |= {"num_examples": len(difference), "code": code, "load": round(os.getloadavg()[0], 1)}
        print(f"supernet, seed {seed}: {runs}", flush=True)
        results.add("supernet", f"seed {seed}", runs)


def scoring_code() -> str:
    """A short name for the code that scores; what another version has measured is measured again."""
    files = [
        Path(str(module.__file__)).read_bytes() for module in (cafenet.scoring.recalibration, cafenet.scoring.scorer)
    ]
    return hashlib.blake2b(b"".join(files), digest_size=4).hexdigest()


def timed_search(scorer: TimedScorer, seed: int, iterations: int) -> dict[str, Any]:
    """One search: how fast widths were scored, and the exact score of its pick."""
    search = WidthSearch(scorer, Evolution(iterations=iterations), SearchConfig(seed=seed))
    scorer.start()
    start = time.perf_counter()
    [result] = search.run(search.budgets(BUDGET), None, quiet=True)
    total = time.perf_counter() - start
    return {
        "num_widths": scorer.num_widths,
        "num_dropped": result.num_dropped,
        "seconds": round(scorer.wall, 2),
        "cpu_seconds": round(scorer.cpu, 2),
        "seconds_with_finalists": round(total, 2),
        "exact_score": result.score,
        "values": _exact_values(scorer, result),
    }


def _exact_values(scorer: Scorer, result: FoundWidths) -> Any:
    bin_counts = scorer.supernet.binned.bins.bin_counts(list(result.widths.values()))
    score = Scorer.score(scorer, bin_counts, exact=True)
    assert score.values is not None
    return score.values


def _facts(trained: Trained) -> dict[str, Any]:
    scorer = Scorer(trained.supernet, trained.train, trained.validation)
    full = scorer.score(trained.supernet.binned.num_bins, exact=True)
    return {
        "flops": int(trained.supernet.space.flops()),
        "num_groups": len(trained.supernet.binned.num_bins),
        "num_widths": trained.supernet.binned.bins.search_space_size,
        "full_accuracy": full.value,
        "num_validation": scorer.validation.size,
        "num_calibration": scorer.calibration.size,
    }


def compare_workers(results: Results, cache: Path, *, num_runs: int, quick: bool) -> None:
    """Search with one worker and with two, one thread each, in turns."""
    wanted = [f"run {number}" for number in range(num_runs)]
    if all(name in results.rows("workers") for name in wanted):
        return
    torch.set_num_threads(1)
    trained = trained_supernet(cache, quick=quick)
    scorer = Scorer(trained.supernet, trained.train, trained.validation)
    for number, name in enumerate(wanted):
        if name in results.rows("workers"):
            continue
        row: dict[str, Any] = {}
        for workers in (1, 2) if number % 2 else (2, 1):
            config = SearchConfig(seed=number, search_workers=workers)
            search = WidthSearch(scorer, Evolution(iterations=2 if quick else 5), config)
            with tempfile.TemporaryDirectory() as directory:
                start = time.perf_counter()
                [result] = search.run(search.budgets(BUDGET), Path(directory) / "trials.journal", quiet=True)
                row[f"seconds_{workers}"] = round(time.perf_counter() - start, 2)
            row[f"num_widths_{workers}"] = result.num_scored
        row["ratio"] = round(row["seconds_2"] / row["seconds_1"], 3)
        row["load"] = round(os.getloadavg()[0], 1)
        print(f"workers, {name}: {row}", flush=True)
        results.add("workers", name, row)
