"""The widths and scores that a trend should be fitted to, judged by its ranking of the labelled ones."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.common.results_file import Results
from benchmarks.ranking.networks import BAND, Task
from benchmarks.ranking.supernets import WAYS, full_network, scores_of, trained_supernet
from cafenet.searching.algorithms.base import distinct
from cafenet.searching.algorithms.trend import fit_worths, sample_balanced
from cafenet.searching.budget import parse_budget
from cafenet.searching.feasible import Feasible

SPREADS = (0.3, 0.5, 0.7, 1.0)
NUM_SAMPLES = 200


def fit_trends(results: Results, task: Task, seeds: Sequence[int], cache: Path) -> None:
    """Worths of the groups for what is missing: a supernet of the default kind, widths drawn as a search draws them."""
    start = time.monotonic()
    for seed in seeds:
        if str(seed) in results.rows(f"trends {task.name}"):
            continue
        trained = full_network(task, seed, cache / f"{task.name}-{seed}")
        supernet = trained_supernet(task, trained, WAYS["fixed"], seed)
        budget = parse_budget(f"{BAND[1]:.0%}", task.space)
        feasible = Feasible(task.bins, {"flops": task.space.flops, "params": task.space.params}, budget)
        row = {}
        for spread in SPREADS:
            bin_counts = distinct(sample_balanced(feasible, NUM_SAMPLES, spread, np.random.default_rng(seed)))
            accuracies, losses = np.array(scores_of(task, supernet, bin_counts)).T
            logarithms = np.log(task.bins.widths(bin_counts))
            for name, values in (("accuracies", accuracies), ("losses", -losses)):
                worths = fit_worths(logarithms, values)
                row[f"{name}, spread {spread}"] = [round(each, 4) for each in (worths / worths.mean()).tolist()]
        results.add(f"trends {task.name}", str(seed), row)
        print(f"trends {task.name}, seed {seed} ({(time.monotonic() - start) / 60:.0f} min)", flush=True)
