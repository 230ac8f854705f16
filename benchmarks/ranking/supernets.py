"""Scores of the same widths by supernets that are trained in several ways, seed by seed, without any race."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.common.results_file import Results
from benchmarks.ranking.labels import AUGMENTATION, BATCH_SIZE
from benchmarks.ranking.networks import BETA, SIZE, Task
from cafenet.data import eval_loader, train_loader
from cafenet.modules.calling import training_mode
from cafenet.scoring.examples import Examples, hold_examples
from cafenet.scoring.recalibration import PreparedSubnet
from cafenet.scoring.scorer import FloatArray
from cafenet.space.bins import IntArray
from cafenet.supernet.build import SupernetConfig, build_supernet
from cafenet.supernet.plain_training import initialised, train_model
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.train import train_supernet
from cafenet.training.config import TrainConfig
from cafenet.training.optimizers import OptimizerConfig

FULL_EPOCHS, EPOCHS = 4.5, 10.5
"""Epochs of the full network, then of the supernet: a search's shares of 15 epochs."""
NEAR = SamplingConfig(flops_band=(0.35, 0.65), spread=0.3, full_share=0.0)
"""Widths about half the FLOPs, as a search for that budget samples them."""
NUM_CALIBRATION, NUM_VALIDATION, EVAL_BATCH = 512, 2000, 256
BALANCED = (0.5, 0.7, 1.0)
"""Shares of all groups whose accuracy tells whether a supernet makes use of more channels."""
FIXED = SupernetConfig(r=0, beta=BETA, sort_by_importance=True)


@dataclass(frozen=True)
class Way:
    """A way to train a supernet that begins with a trained network."""

    supernet: SupernetConfig = FIXED
    sampling: SamplingConfig = NEAR
    epochs: float = 1.0
    """Number of epochs, as a multiple of the usual number."""


WAYS = {
    "fixed": Way(),
    "r=1 race": Way(replace(FIXED, r=1)),
    "r=1 exact": Way(replace(FIXED, r=1, choice="exact")),
    "fixed, 1.5x epochs": Way(epochs=1.5),
    "fixed, 4x epochs": Way(epochs=4.0),
    "r=1 random candidates": Way(replace(FIXED, r=1), replace(NEAR, random_share=1.0)),
    "r=2 race": Way(replace(FIXED, r=2)),
    "r=2 exact": Way(replace(FIXED, r=2, choice="exact")),
    "bilateral": Way(replace(FIXED, sharing="bilateral")),
    "fixed, sandwich": Way(sampling=replace(NEAR, sandwich=2), epochs=0.25),
    "fixed, over all widths": Way(sampling=replace(NEAR, flops_band=None)),
    "r=1 race, over all widths": Way(replace(FIXED, r=1), replace(NEAR, flops_band=None)),
}
"""The sandwich rule trains four widths a step, so it gets a quarter of the epochs."""


def rank(results: Results, task: Task, names: Sequence[str], seeds: Sequence[int], cache: Path) -> None:
    """Train and score what is missing, seed by seed, all ways of a seed before the next."""
    start, part = time.monotonic(), f"supernets {task.name}"
    for seed, name, trained in still_missing(results, part, task, names, seeds, cache):
        row = ranked(task, trained, WAYS[name], seed)
        results.add(part, name, row, str(seed))
        minutes = (time.monotonic() - start) / 60
        print(f"{task.name}, {name}, seed {seed}: {row['train_seconds']:.0f} s ({minutes:.0f} min)", flush=True)


def still_missing(
    results: Results, part: str, task: Task, names: Sequence[str], seeds: Sequence[int], cache: Path
) -> Iterator[tuple[int, str, nn.Module]]:
    """The seeds and names that a part has no row of, each with the full network that it begins with."""
    for seed in seeds:
        known = results.rows(part)
        for name in (name for name in names if str(seed) not in known.get(name, {})):
            yield seed, name, full_network(task, seed, cache / f"{task.name}-{seed}")


def full_network(task: Task, seed: int, directory: Path) -> nn.Module:
    """The network that all supernets of a seed begin with, trained once."""
    model, config = initialised(task.build(), seed), supernet_training(FULL_EPOCHS, seed)
    batches = train_loader(task.train, BATCH_SIZE, AUGMENTATION)
    return train_model(model, torch.zeros(1, 3, SIZE, SIZE), batches, config, directory=directory, quiet=True)


def ranked(task: Task, trained: nn.Module, way: Way, seed: int) -> dict[str, Any]:
    """Accuracy and loss of every width's best candidate on the validation images."""
    start = time.process_time()
    supernet = trained_supernet(task, trained, way, seed)
    train_seconds = time.process_time() - start
    start = time.process_time()
    scores = scores_of(task, supernet, task.bin_counts)
    score_seconds = time.process_time() - start
    balanced = [np.maximum(1, np.rint(share * task.bins.num_bins).astype(np.int64)) for share in BALANCED]
    return {
        "train_seconds": round(train_seconds, 1),
        "score_seconds": round(score_seconds, 1),
        "accuracy": [round(accuracy, 2) for accuracy, _ in scores],
        "loss": [round(loss, 4) for _, loss in scores],
        "balanced": [round(accuracy, 2) for accuracy, _ in scores_of(task, supernet, balanced)],
    }


def trained_supernet(task: Task, trained: nn.Module, way: Way, seed: int, directory: Path | None = None) -> Supernet:
    """A supernet that goes on from the trained network; its log goes to the directory."""
    supernet = build_supernet(trained, task.space, way.supernet, seed=seed)
    config, batches = supernet_training(EPOCHS * way.epochs, seed), train_loader(task.train, BATCH_SIZE, AUGMENTATION)
    train_supernet(supernet, batches, config, sampling=way.sampling, directory=directory, quiet=True)
    return supernet


def scores_of(task: Task, supernet: Supernet, rows: Iterable[IntArray]) -> list[tuple[float, float]]:
    """Accuracy and loss of widths, given as bins per group."""
    calibration = hold_examples(eval_loader(task.train), "training data", num_examples=NUM_CALIBRATION)
    validation = hold_examples(eval_loader(task.validation), "validation data", num_examples=NUM_VALIDATION)
    return [scored(supernet, row, calibration, validation) for row in rows]


def scored(
    supernet: Supernet, bin_counts: IntArray, calibration: Examples, validation: Examples
) -> tuple[float, float]:
    """The best candidate's accuracy in percent, and the least loss of any (the means, where a sharing averages)."""
    accuracies, losses = candidate_scores(supernet, bin_counts, calibration, validation).T
    if supernet.sharing.averages:
        return float(accuracies.mean()), float(losses.mean())
    return float(accuracies.max()), float(losses.min())


def candidate_scores(
    supernet: Supernet, bin_counts: IntArray, calibration: Examples, validation: Examples
) -> FloatArray:
    """Accuracy in percent and loss of every candidate of a width, one row each, the leftmost first."""
    generator = torch.Generator().manual_seed(0)
    found = []
    with training_mode(supernet.model, False), torch.no_grad():
        for candidate in supernet.sharing.candidates(supernet.binned, bin_counts, generator):
            prepared = PreparedSubnet(supernet, candidate)
            prepared.recalibrate([x for x, _ in calibration.batches(0, NUM_CALIBRATION, EVAL_BATCH)], goes_on=False)
            parts = [(prepared.run(x), y) for x, y in validation.batches(0, validation.size, EVAL_BATCH)]
            outputs, targets = (torch.cat(each) for each in zip(*parts, strict=True))
            accuracy = 100 * (outputs.argmax(1) == targets).double().mean().item()
            found.append((accuracy, cross_entropy(outputs, targets).item()))
    return np.array(found)


def supernet_training(epochs: float, seed: int) -> TrainConfig:
    """The options that all trainings have in common."""
    return TrainConfig(epochs=epochs, batch_size=BATCH_SIZE, optimizer=OptimizerConfig(lr=0.1), seed=seed)
