"""Faults of a run's files that show only beside other files: a recipe that is not the run's, a log without lines."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cafenet.common.plain_values import digest_of_values
from cafenet.common.read_files import read_log
from cafenet.common.run_files import MANIFEST, RECIPE
from cafenet.common.run_places import LOG, SLIM
from cafenet.searching.store.salvage import salvaged

LOGGED = ("epoch", "loss")
"""Keys of a log's line that a figure needs."""


def check_recipe(path: Path, recipe: Mapping[str, Any], manifest: Mapping[str, Any], problems: list[str]) -> None:
    """Compare a run's recipe with the digest of it in the manifest; half of a YAML file is often valid YAML.

    Args:
        path: The run directory.
        recipe: The values of `recipe.yaml`; empty if they could not be read.
        manifest: The manifest; empty if it could not be read.
        problems: List to which a sentence is added if the two do not agree.
    """
    known = manifest.get("recipe")
    if recipe and known is not None and known != digest_of_values(recipe):
        problems.append(
            f"{path / RECIPE.name} must hold the recipe that the run was started with, but it was changed or damaged "
            f"since: its values have another digest than {MANIFEST.name} says; {RECIPE.remedy}"
        )


def check_journal(path: Path, journal: Path, manifest: Mapping[str, Any], problems: list[str]) -> None:
    """Look for damaged lines of a journal, and compare its size with that in the manifest.

    A journal that lacks lines at its end is valid by itself.

    Args:
        path: The run directory.
        journal: The journal, which may be missing.
        manifest: The manifest; empty if it could not be read.
        problems: List to which a sentence is added if lines are damaged, or if the journal is smaller than it was.

    Raises:
        StoreError: If the file is no journal.
    """
    if journal.is_file():
        found = salvaged(journal.read_bytes().splitlines(keepends=True), journal)
        if found.num_damaged:
            problems.append(
                f"{journal} must hold all scored widths, but {found.num_damaged} of its lines are damaged; figures "
                f"lack {found.num_lost} trials; put a copy of the file back, or start the search again, which scores "
                "them anew"
            )
    wanted = manifest.get("journals", {}).get(journal.relative_to(path).as_posix(), 0)
    size = journal.stat().st_size if journal.is_file() else 0
    if size < wanted:
        problems.append(
            f"{journal} must hold all scored widths, {wanted:,} bytes when it was last written, but has {size:,}; "
            "figures lack the others, which are missing; put a copy of the file back, or remove it and score again"
        )


def read_training_log(place: Path, problems: list[str], *, was_trained: bool) -> list[dict[str, Any]]:
    """Read the log of a training for a figure.

    Args:
        place: Directory of the training.
        problems: List to which a sentence is added if lines are damaged, or missing after the training has ended.
        was_trained: True if something else shows that the training has ended.

    Returns:
        The lines that hold an epoch and a loss.
    """
    damaged: list[int] = []
    lines = read_log(place / LOG, LOGGED, damaged)
    if damaged:
        what = f"line {damaged[0]} is damaged" if len(damaged) == 1 else f"{len(damaged)} lines are damaged"
        problems.append(f"{place / LOG} must hold the loss of each logged step, but {what}; figures leave them out")
    elif was_trained and not lines:
        problems.append(f"{place / LOG} must hold the loss of each logged step, but has none; no figure can show them")
    return lines


def check_slim_file(place: Path, problems: list[str]) -> None:
    """Look whether the file of a finished model is there and an archive, as its size is shown.

    Args:
        place: Directory of the model. If it is not there, somebody has removed it on purpose.
        problems: List to which a sentence is added if the file is missing or damaged.
    """
    file = place / SLIM
    if place.is_dir() and not zipfile.is_zipfile(file):
        fault = "is damaged" if file.exists() else "is not there"
        problems.append(
            f"{file} must hold the model that was trained, but {fault}; the same command makes it anew from its last "
            "checkpoint"
        )
