"""Final models: every entry trained alike, for every seed, evaluated once on the test set, saved."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cafenet.atomic import write_json
from cafenet.checkpoint import FORMAT, restoring
from cafenet.errors import RecipeError
from cafenet.evaluate import evaluate
from cafenet.retrain import train_model
from cafenet.runs.entries import Entry
from cafenet.runs.workload import Workload
from cafenet.slim_file import load, save
from cafenet.trainer import restore_constants


def final_model(workload: Workload, entry: Entry, seed: int, directory: Path) -> dict[str, Any]:
    """Train (or continue) one entry with one seed; returns its evaluation on the test set."""
    place = directory / "models" / entry.key / f"seed-{seed}"
    evaluation = place / "evaluation.json"
    if evaluation.exists():
        found: dict[str, Any] = json.loads(evaluation.read_text())
        return found
    config = replace(workload.recipe.retrain.train, seed=seed)
    teacher = _teacher(workload, entry, seed, directory)
    trained = train_model(
        start_of(workload, entry, seed),
        workload.example,
        workload.loader(workload.whole_train, augmented_batch=config.batch_size),
        config,
        loss=workload.recipe.loss,
        teacher=teacher,
        distill=None if teacher is None else workload.recipe.retrain.distill,
        directory=place,
        quiet=workload.quiet,
        title=f"{entry.method} {entry.budget} seed {seed}".replace("  ", " "),
    )
    save(trained, place / "slim.pt")
    result = evaluate(trained, workload.loader(workload.test), loss=workload.recipe.loss)
    write_json(evaluation, result)
    return result


def start_of(workload: Workload, entry: Entry, seed: int) -> nn.Module:
    """The untrained model of an entry: fresh weights of that seed, or the supernet's where the recipe says so."""
    weights = workload.build(seed)
    if workload.recipe.retrain.start == "supernet" and entry.supernet is not None:
        path = entry.supernet / "supernet.pt"
        content = torch.load(path, map_location="cpu", weights_only=True)
        with restoring(path):
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r:.40}")
            weights.load_state_dict(content["model"])
            restore_constants(weights, content)
    return (
        workload.space.extract(channels=entry.channels, model=weights) if entry.channels else _whole(workload, weights)
    )


def load_final(workload: Workload, entry: Entry, seed: int, directory: Path) -> nn.Module:
    """A final model that was trained before."""
    return load(directory / "models" / entry.key / f"seed-{seed}" / "slim.pt", workload.model)


def _whole(workload: Workload, weights: nn.Module) -> nn.Module:
    return workload.space.extract(model=weights)


def _teacher(workload: Workload, entry: Entry, seed: int, directory: Path) -> nn.Module | None:
    """The recipe's teacher; the original network has none, since it is what may be the teacher."""
    name = workload.recipe.retrain.teacher
    if name is None or entry.channels is None:
        return None
    if name != "original":
        return workload.teacher()
    original = Entry("Original", "", None)
    if not (directory / "models" / original.key / f"seed-{seed}" / "slim.pt").exists():
        raise RecipeError("retrain.teacher original needs baselines.original true, but it is false")
    return load_final(workload, original, seed, directory)
