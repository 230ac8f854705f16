"""Cheap freedom: candidates drawn at random in training, compared or averaged only when widths are scored.

The rule, written down before the first supernet of this step: the comparison is that of r = 1 with random candidates,
ranked by the trend of the mean accuracy over candidates, minus the fixed sharing ranked by the trend of its accuracy,
over both networks and 8 seeds each, by tau against the labels. If its 95% interval lies above zero, random candidates
and mean scores become the default; their training step costs no more than a fixed one. All supernets of a seed begin
with the same full network. What min-min chooses is counted where it chooses.
"""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from benchmarks.common.intervals import cell_of
from benchmarks.common.results_file import Results
from benchmarks.ranking.networks import Task
from benchmarks.ranking.ranking import Measured, Truth, difference, measures_of
from benchmarks.ranking.supernets import (
    NUM_CALIBRATION,
    NUM_VALIDATION,
    WAYS,
    Way,
    candidate_scores,
    still_missing,
    trained_supernet,
)
from cafenet.common.run_places import LOG
from cafenet.data import eval_loader
from cafenet.scoring.examples import hold_examples
from cafenet.searching.algorithms.trend import fit_worths

FREE = ("fixed", "r=1 race", "r=1 random candidates")
HEADING = """\
## Cheap freedom

Made by `python -m benchmarks.ranking freedom`. The same 100 widths, each scored by its best candidate, by the mean over
its candidates (three with r = 1) and by the leftmost one alone. *Random candidates* are drawn in training, so a step
costs what a fixed one costs. Differences are those of the trend's tau to the fixed sharing, paired by network and seed.
The comparison that decides was named before the first run: random candidates, mean accuracy. *Chosen* is how often
min-min took the leftmost and the other candidates, in percent."""
RANKINGS = ("best accuracy", "mean accuracy", "leftmost accuracy", "mean loss")


def part_of(task: Task) -> str:
    """The part of the results that holds the scores of every candidate."""
    return f"freedom {task.name}"


def measure_freedom(results: Results, task: Task, seeds: Sequence[int], cache: Path) -> None:
    """Train and score the supernets that are missing, seed by seed."""
    for seed, name, trained in still_missing(results, part_of(task), task, FREE, seeds, cache):
        row = scored_candidates(task, trained, WAYS[name], seed)
        results.add(part_of(task), name, row, str(seed))
        print(f"{part_of(task)}: {name}, seed {seed}: {row['train_seconds']:.0f} s", flush=True)


def scored_candidates(task: Task, trained: nn.Module, way: Way, seed: int) -> dict[str, Any]:
    """The score of every width in each way: by the best candidate, by their mean, by the leftmost alone."""
    start = time.process_time()
    with tempfile.TemporaryDirectory() as directory:
        supernet = trained_supernet(task, trained, way, seed, Path(directory))
        *_, last = (Path(directory) / LOG).read_text(encoding="utf-8").splitlines()
    train_seconds = time.process_time() - start
    calibration = hold_examples(eval_loader(task.train), "training data", num_examples=NUM_CALIBRATION)
    validation = hold_examples(eval_loader(task.validation), "validation data", num_examples=NUM_VALIDATION)
    tables = [candidate_scores(supernet, row, calibration, validation) for row in task.bin_counts]
    accuracies, losses = ([table[:, column] for table in tables] for column in (0, 1))
    return {
        "train_seconds": round(train_seconds, 1),
        "chosen": json.loads(last)["chosen"],
        "best accuracy": [round(float(each.max()), 2) for each in accuracies],
        "mean accuracy": [round(float(each.mean()), 3) for each in accuracies],
        "leftmost accuracy": [round(float(each[0]), 2) for each in accuracies],
        "mean loss": [round(float(each.mean()), 4) for each in losses],
    }


def section(results: Results, truths: dict[str, Truth]) -> list[str]:
    """The tables of the page; nothing before the first supernet.

    Args:
        results: Everything that was measured.
        truths: The labels of each network's widths.
    """
    found: Measured = {}
    for network, known in truths.items():
        for way, seeds in results.rows(f"freedom {network}").items():
            for seed, row in seeds.items():
                for ranking in RANKINGS:
                    measured = _by_trend(row, ranking, known)
                    found.setdefault(f"{way}, {ranking}", {})[f"{network} {seed}"] = measured
    if not found:
        return []
    lines = ["", HEADING, "", "| trained, ranked by the trend of | pairs | tau | minus fixed |"]
    lines.append("| --- | ---: | ---: | ---: |")
    for name, seeds in found.items():
        mean = np.mean([row["tau"] for row in seeds.values()])
        minus = difference(found, name, "fixed, best accuracy", "tau")
        lines.append(f"| {name} | {len(seeds)} | {mean:.3f} | {'' if minus is None else cell_of(minus, 3)} |")
    return [*lines, *_choices(results, list(truths))]


def _by_trend(row: dict[str, Any], ranking: str, known: Truth) -> dict[str, float]:
    """Kendall's tau with which the trend of one column of a supernet's scores ranks the labelled widths."""
    values = np.array(row[ranking])[known.numbers] * (-1 if "loss" in ranking else 1)
    return measures_of(known.logarithms @ fit_worths(known.logarithms, values), known)


def _choices(results: Results, networks: Sequence[str]) -> list[str]:
    """Shares of the steps in which min-min took each candidate, over all supernets in which it chose."""
    chosen: Counter[str] = Counter()
    for network in networks:
        for row in results.rows(f"freedom {network}").get("r=1 race", {}).values():
            chosen.update(row["chosen"])
    if not chosen:
        return []
    shares = ", ".join(f"{100 * count / chosen.total():.0f}" for _, count in sorted(chosen.items()))
    return ["", f"Chosen by min-min: {shares}% of {chosen.total():,} choices."]
