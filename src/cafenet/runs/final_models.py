"""Final models: every entry is trained alike with every seed, evaluated once on the test set, and saved."""

from pathlib import Path
from typing import Any

from torch import nn

from cafenet.common.read_files import read_if_there
from cafenet.common.run_files import ENTRIES, EVALUATION, START
from cafenet.common.run_places import SLIM, SUPERNET_CHECKPOINT, model_place
from cafenet.errors import RecipeError, RunFileError, SlimFileError
from cafenet.pipeline.entries import Entry
from cafenet.runs.identity import begin_training, digest_of_file, keep_evaluation, kept_evaluation
from cafenet.runs.recipe_files import as_document
from cafenet.runs.workload import Workload
from cafenet.scoring.evaluation import evaluate
from cafenet.space.importance import restore_constants
from cafenet.space.slim_file import load, save
from cafenet.supernet.plain_training import train_model
from cafenet.training.checkpoint import digest_of_checkpoint, load_checkpoint, restoring
from cafenet.training.loop import WITHOUT_EFFECT

_ORIGINAL = Entry("Original", "", None)


def final_model(workload: Workload, entry: Entry, seed: int, directory: Path) -> dict[str, Any]:
    """Train (or continue) one entry with one seed and evaluate it.

    Args:
        workload: The parts of the run.
        entry: The method and the channels that it keeps.
        seed: Seed of the training.
        directory: The run directory.

    Returns:
        The evaluation on the test set, as `cafenet.evaluate` returns it.

    Raises:
        RunFileError: If the model's directory holds the training of another model.
        TrainingError: If the training fails.
    """
    place = model_place(directory, entry.key, seed)
    identity = _identity(workload, entry, seed, directory)
    tested = {**identity, "test_data": workload.data_digests["test"]}
    found = kept_evaluation(EVALUATION, place, place / SLIM, tested)
    if found is not None:
        return found
    begin_training(place, identity)
    config = workload.recipe.finetune.training(seed)
    teacher = _teacher(workload, entry, seed, directory)
    trained = train_model(
        start_of(workload, entry, seed),
        workload.example,
        workload.loader(workload.whole_train, augmented_batch=config.batch_size),
        config,
        loss=workload.recipe.loss,
        teacher=teacher,
        distill=None if teacher is None else workload.recipe.finetune.distill,
        directory=place,
        quiet=workload.quiet,
        title=f"{entry.method} {entry.budget} seed {seed}".replace("  ", " "),
        space=workload.space_of(entry.channels or {}),
    )
    save(trained, place / SLIM)
    result = evaluate(trained, workload.loader(workload.test), loss=workload.recipe.loss)
    keep_evaluation(EVALUATION, place, place / SLIM, tested, result)
    return result


def _identity(workload: Workload, entry: Entry, seed: int, directory: Path) -> dict[str, Any]:
    """Return everything that the training of an entry depends on."""
    recipe = workload.recipe
    options = as_document(recipe.finetune)
    for name in ("seeds", "seed", *WITHOUT_EFFECT):
        options.pop(name, None)
    begins_with: dict[str, Any] = {}
    if recipe.finetune.start == "supernet" and entry.supernet is not None:
        begins_with["supernet"] = digest_of_checkpoint(entry.supernet / SUPERNET_CHECKPOINT)
    if recipe.finetune.teacher == "original" and entry.channels is not None:
        begins_with["teacher"] = digest_of_file(_of_original(directory, seed))
    return {
        "model": as_document(recipe.model),
        "loss": recipe.loss,
        "finetune": options,
        "augmentation": as_document(recipe.data.augmentation),
        "seed": seed,
        "channels": entry.channels,
        "train_data": workload.data_digests["train"],
        **begins_with,
    }


def start_of(workload: Workload, entry: Entry, seed: int) -> nn.Module:
    """Build the untrained model of an entry.

    Args:
        workload: The parts of the run.
        entry: The method and the channels that it keeps.
        seed: Seed of fresh weights.

    Returns:
        The slim model, with fresh weights or, if the recipe says so, with those of the supernet.
    """
    weights = workload.build(seed)
    if workload.recipe.finetune.start == "supernet" and entry.supernet is not None:
        path = entry.supernet / SUPERNET_CHECKPOINT
        content = load_checkpoint(path)
        with restoring(path):
            weights.load_state_dict(content["model"])
            restore_constants(weights, content)
    return (
        workload.space.extract(channels=entry.channels, model=weights) if entry.channels else _whole(workload, weights)
    )


def load_final(workload: Workload, entry: Entry, seed: int, directory: Path) -> nn.Module:
    """Load a final model that was trained before.

    Args:
        workload: The parts of the run.
        entry: The method and the channels that it keeps.
        seed: Seed of the training.
        directory: The run directory.

    Returns:
        The trained model.

    Raises:
        RunFileError: If the file is missing or damaged, or keeps other channels than the entry.
    """
    place = model_place(directory, entry.key, seed)
    path, begun = place / SLIM, read_if_there(START, place)
    if begun is not None and "channels" in begun and begun["channels"] != entry.channels:
        raise RunFileError(
            f"{directory / ENTRIES.name} must hold what this run found, but the model in {place} keeps other channels; "
            f"{ENTRIES.remedy}"
        )
    try:
        return load(path, workload.model)
    except SlimFileError as error:
        raise RunFileError(f"{error}; remove it, and `cafenet run` writes it anew from the checkpoint") from error


def _whole(workload: Workload, weights: nn.Module) -> nn.Module:
    """Return the full network as a slim model that keeps all channels."""
    return workload.space.extract(model=weights)


def _teacher(workload: Workload, entry: Entry, seed: int, directory: Path) -> nn.Module | None:
    """Return the recipe's teacher; the original network has none, because it may be the teacher itself."""
    name = workload.recipe.finetune.teacher
    if name is None or entry.channels is None:
        return None
    if name != "original":
        return workload.teacher()
    _of_original(directory, seed)
    return load_final(workload, _ORIGINAL, seed, directory)


def _of_original(directory: Path, seed: int) -> Path:
    """Return the file of the trained original network."""
    path = model_place(directory, _ORIGINAL.key, seed) / SLIM
    if not path.exists():
        raise RecipeError("finetune.teacher original needs baselines.original true, but it is false")
    return path
