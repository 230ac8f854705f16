"""The layout of a run directory: names of files and directories, and the version of the layout.

`cafenet run` and `cafenet.search` lay their files out alike. Smallest example, a search in two stages for half the
FLOPs:

    recipe.yaml, manifest.json      what was asked for; when, where and how long it was done
    space.json, entries.json        the width groups; what each method found
    supernet/50pct/stage-1, -2      the supernets, their scores and their results
    models/50pct-cafenet-t/seed-0   the slim model
    report.html                     the page

A run of one stage has one supernet for all budgets, in `supernet` itself.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cafenet.common.run_files import MANIFEST
from cafenet.errors import RecipeError, RunFileError

LOG = "log.jsonl"
JOURNAL = "trials.journal"
LATENCY = "latency.json"
REPORT = "report.html"
SLIM = "slim.pt"
SEARCHED = "searched.pt"
SUPERNET_CHECKPOINT = "supernet.pt"
MODEL_CHECKPOINT = "model.pt"
DETECTOR_CHECKPOINT = "detector.pt"
MODELS = "models"
SAMPLE_IMAGES = "samples"
SUPERNET = "supernet"
"""Directory of the supernet, or of the searches that train supernets of their own."""
FIXED_SUPERNET = "supernet-fixed"
"""Directory of the supernet for the baseline with fixed sharing."""
FULL_NETWORK = "full"
"""Subdirectory with the full network that a supernet's training began with."""
RANDOM = "random"
"""Directory of the Random baseline's short trainings."""
FORMAT_VERSION = 3
"""Version of the layout of a run directory."""
_OLD_SEARCH = "search.json"
"""The file that directories of `cafenet.search` had in format 1."""
_LONGEST_SLUG = 80


def slug(*parts: str) -> str:
    """Turns a budget and a method into a file name: "50%" and "CafeNet-T" give `50pct-cafenet-t`.

    Args:
        *parts: Texts as the user wrote them; empty ones are left out.

    Returns:
        Lower-case letters, digits and dots with single hyphens between them.
    """
    text = "-".join(part for part in parts if part).replace("%", "pct").lower()
    plain = re.sub(r"(?:[^\w.]|_)+", "-", text).strip("-.")
    if len(plain) <= _LONGEST_SLUG:
        return plain
    return f"{plain[:_LONGEST_SLUG]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def model_place(directory: Path, key: str, seed: int) -> Path:
    """Names the directory of a final model, for example `models/50pct-uniform/seed-0`.

    Args:
        directory: The run directory.
        key: Budget and method of the model, for example `50pct-uniform`.
        seed: Seed of the training.

    Returns:
        The path, which need not exist.
    """
    return directory / MODELS / key / f"seed-{seed}"


def search_place(directory: Path, budget: Any, supernet: str = SUPERNET) -> Path:
    """Names the directory of a search that trains supernets for one budget, for example `supernet/50pct` for "50%".

    Args:
        directory: The run directory.
        budget: The budget as the user wrote it.
        supernet: `SUPERNET` or `FIXED_SUPERNET`.

    Returns:
        The path, which need not exist.
    """
    return directory / supernet / slug(str(budget))


def stage_place(search: Path, number: int) -> Path:
    """Names the directory of one stage, for example `supernet/50pct/stage-1`.

    Args:
        search: Directory of the search, as `search_place` names it.
        number: Number of the stage, counted from 1.

    Returns:
        The path, which need not exist.
    """
    return search / f"stage-{number}"


def result_name(algorithm: str, budget: str) -> str:
    """Names the file with the result of an algorithm for a budget, for example `result-trend-50pct.json` for "50%".

    Args:
        algorithm: Name of the algorithm.
        budget: The budget as the user wrote it.

    Returns:
        The file name.
    """
    return f"result-{slug(algorithm, budget)}.json"


def expect_this_format(directory: Path) -> None:
    """Refuses a directory whose files are laid out as another version of CafeNet did it.

    Args:
        directory: A run directory, which may be empty or missing.

    Raises:
        RunFileError: If the files have another format.
    """
    version: Any = 1 if (directory / _OLD_SEARCH).exists() else None
    with suppress(OSError, ValueError, RecursionError, AttributeError):
        version = json.loads((directory / MANIFEST.name).read_bytes()).get("format_version", version)
    if version not in (None, FORMAT_VERSION):
        raise RunFileError(
            f"{directory} must hold files of format {FORMAT_VERSION}, but they have format {version} of another "
            "version of CafeNet; use that version, or give another directory"
        )


def expect_maker(directory: Path, recipe: Mapping[str, Any], maker: str) -> None:
    """Refuses the directory of another command.

    Args:
        directory: The run directory.
        recipe: The recipe in it.
        maker: The command that wants to use the directory, for example `cafenet run`.

    Raises:
        RecipeError: If another command made the directory.
    """
    found = maker_of(recipe)
    if found != maker:
        raise RecipeError(
            f"{directory} must be a directory of `{maker}`, but `{found}` made it; give another directory"
        )


def maker_of(recipe: Mapping[str, Any]) -> str:
    """Tells which command a recipe is for.

    Args:
        recipe: The recipe as plain values.

    Returns:
        "cafenet run", "cafenet detect" or "cafenet.search"; only the last notes its name in the recipe.
    """
    return str(recipe.get("call", "cafenet detect" if "detector" in recipe else "cafenet run"))
