"""Which widths a trend should be fitted to, and to which of their scores: judged by how it ranks the labelled ones."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from benchmarks.ranking.networks import BAND, Task
from benchmarks.ranking.picks import BUDGET
from benchmarks.ranking.ranking import fit_line
from benchmarks.ranking.supernets import WAYS, full_network, scores_of, trained_supernet
from benchmarks.search_results import Results

import cafenet
from cafenet.scoring import FloatArray
from cafenet.searching.algorithm import distinct
from cafenet.searching.budget import parse_budget
from cafenet.searching.feasible import Feasible
from cafenet.searching.trend import sample_balanced
from cafenet.searching.worths import fit_worths
from cafenet.supernet import Supernet

SPREADS = (0.3, 0.5, 0.7, 1.0)
NUM_SAMPLES = 200
NUM_HALVED, NUM_WAYS = (80, 160, 320), 8
"""Widths that are cut in halves, and in how many ways."""
FITS: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "curves": lambda logarithms, values: fit_worths(logarithms, values)[0],
    "lines": fit_line,
}


def fit_trends(results: Results, task: Task, seeds: Sequence[int], cache: Path) -> None:
    """Worths of the groups for what is missing: a supernet of the default kind, widths drawn as a search draws them."""
    start = time.monotonic()
    for seed in seeds:
        if str(seed) in results.rows(f"trends {task.name}"):
            continue
        supernet, feasible = _supernet(task, seed, cache), _feasible(task, f"{BAND[1]:.0%}")
        row = {}
        for spread in SPREADS:
            taken = distinct(sample_balanced(feasible, NUM_SAMPLES, spread, np.random.default_rng(seed)))
            accuracies, losses = np.array(scores_of(task, supernet, taken)).T
            logarithms = np.log(task.bins.widths(taken))
            for name, values in (("accuracies", accuracies), ("losses", -losses)):
                worths, _ = fit_worths(logarithms, values)
                row[f"{name}, spread {spread}"] = [round(each, 4) for each in (worths / worths.mean()).tolist()]
        results.add(f"trends {task.name}", str(seed), row)
        print(f"trends {task.name}, seed {seed} ({(time.monotonic() - start) / 60:.0f} min)", flush=True)


def fit_halves(results: Results, task: Task, seeds: Sequence[int], cache: Path) -> None:
    """How steady worths are that are fitted to one half of a search's widths and to the other, for what is missing."""
    start = time.monotonic()
    for seed in seeds:
        if str(seed) in results.rows(f"halves {task.name}"):
            continue
        supernet, feasible, rng = _supernet(task, seed, cache), _feasible(task, BUDGET), np.random.default_rng(seed)
        taken = distinct(sample_balanced(feasible, max(NUM_HALVED), cafenet.Trend().spread, rng))
        accuracies = np.array(scores_of(task, supernet, taken))[:, 0]
        logarithms = np.log(task.bins.widths(taken))
        row = {
            f"{name}, {num}": round(unsteadiness(logarithms[:num], accuracies[:num], fit, rng), 4)
            for num in NUM_HALVED
            for name, fit in FITS.items()
        }
        results.add(f"halves {task.name}", str(seed), row)
        print(f"halves {task.name}, seed {seed} ({(time.monotonic() - start) / 60:.0f} min)", flush=True)


def unsteadiness(
    logarithms: FloatArray,
    values: FloatArray,
    fit: Callable[[FloatArray, FloatArray], FloatArray],
    rng: np.random.Generator,
) -> float:
    """The standard deviation of a group's worth that is fitted to half of the widths, as a share of the mean worth."""
    apart = []
    for _ in range(NUM_WAYS):
        halves = np.array_split(rng.permutation(len(values)), 2)
        first, second = (fit(logarithms[half], values[half]) for half in halves)
        apart.append(first / first.mean() - second / second.mean())
    return float(np.sqrt(np.mean(np.square(apart)) / 2))


def _supernet(task: Task, seed: int, cache: Path) -> Supernet:
    trained = full_network(task, seed, cache / f"{task.name}-{seed}")
    return trained_supernet(task, trained, WAYS["fixed"], seed)


def _feasible(task: Task, budget: str) -> Feasible:
    costs = {"flops": task.space.flops, "params": task.space.params}
    return Feasible(task.bins, costs, parse_budget(budget, task.space))
