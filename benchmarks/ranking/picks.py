"""Whole searches at half the FLOPs, judged by the law of the labels."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import cafenet
from benchmarks.common.results_file import Results
from benchmarks.ranking.labels import AUGMENTATION, BATCH_SIZE
from benchmarks.ranking.law import Law
from benchmarks.ranking.networks import SIZE, Task
from benchmarks.ranking.supernets import EPOCHS, FIXED, still_missing, supernet_training
from cafenet.data import eval_loader, train_loader
from cafenet.searching.algorithms.base import Algorithm
from cafenet.searching.algorithms.trend_optimum import best_of_trend
from cafenet.searching.budget import parse_budget
from cafenet.searching.feasible import Feasible

BUDGET = "50%"
NUM_SCORED = 200
TWICE = 2.0
"""Largest factor by which a group may deviate from uniform widths."""
REFERENCE = "trend, one stage"
"""The way to search that the others are compared with."""
BEST_OF_LINE = "the best of the line within twice of uniform widths"


@dataclass(frozen=True)
class Way:
    """A way to search; those with the same supernet share it."""

    algorithm: Algorithm
    stages: cafenet.StagesConfig = field(default_factory=cafenet.StagesConfig)


TWO = cafenet.StagesConfig(2, alpha=1.0, carry_weights=True)
SEARCHES = {
    REFERENCE: Way(cafenet.Trend(NUM_SCORED, farthest=TWICE)),
    "trend, one stage, widths 0.7 apart": Way(cafenet.Trend(NUM_SCORED, spread=0.7, farthest=TWICE)),
    "trend, one stage, widths 1.0 apart": Way(cafenet.Trend(NUM_SCORED, spread=1.0, farthest=TWICE)),
    "trend, one stage, four times from uniform": Way(cafenet.Trend(NUM_SCORED, farthest=4.0)),
    "trend, two stages": Way(cafenet.Trend(NUM_SCORED), TWO),
    "trend, two stages, as many widths in each": Way(cafenet.Trend(2 * NUM_SCORED), TWO),
    "evolution, one stage": Way(cafenet.Evolution(population=20, iterations=NUM_SCORED // 20)),
    "random, one stage": Way(cafenet.RandomSearch(NUM_SCORED)),
}
"""Two stages share the epochs, and the number of widths that are scored where the name does not say otherwise."""


def search_all(results: Results, task: Task, names: Sequence[str], seeds: Sequence[int], cache: Path) -> None:
    """The widths that every way finds, for what is missing, seed by seed."""
    start, part = time.monotonic(), f"picks {task.name}"
    for seed, name, trained in still_missing(results, part, task, names, seeds, cache):
        widths = found(task, trained, SEARCHES[name], seed, cache / f"{task.name}-{seed}-search")
        results.add(part, name, widths, str(seed))
        print(f"{task.name}, {name}, seed {seed}: {widths} ({(time.monotonic() - start) / 60:.0f} min)", flush=True)


def found(task: Task, trained: nn.Module, way: Way, seed: int, place: Path) -> list[int]:
    """Channels per group; the stages share the epochs of the training."""
    result = cafenet.search(
        trained,
        train_loader(task.train, BATCH_SIZE, AUGMENTATION),
        eval_loader(task.validation),
        BUDGET,
        train=supernet_training(EPOCHS, seed),
        finetune=False,  # widths alone are asked for
        trained=False,  # all options are given
        options=cafenet.SearchOptions(
            supernet=FIXED,
            sampling=cafenet.SamplingConfig(full_share=0.0),
            stages=way.stages,
            algorithm=way.algorithm,
        ),
        example_inputs=torch.zeros(1, 3, SIZE, SIZE),
        seed=seed,
        directory=place / f"{way.stages.num_stages}",
        quiet=True,
    )
    return [result.widths[group.name] for group in task.space.groups]


def without_supernet(task: Task, law: Law) -> dict[str, list[int]]:
    """Uniform widths, and the best of the line within the distance that a stage of two goes by default."""
    costs: dict[str, Any] = {"flops": task.space.flops, "params": task.space.params}
    feasible = Feasible(task.bins, costs, parse_budget(BUDGET, task.space))
    uniform = feasible.fill(feasible.uniform(), np.random.default_rng(0), low=0.99, n=1)[0]
    best = best_of_trend(feasible, law.worths, TWICE)[0]
    rows = {"uniform widths": uniform, BEST_OF_LINE: best}
    return {name: task.bins.widths(row).tolist() for name, row in rows.items()}
