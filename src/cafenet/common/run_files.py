"""The files of a run directory: their names, their required content, and the one way in which all of them are read.

`cafenet run` and `cafenet.search` lay their files out alike. Smallest example, a search in two stages for half the
FLOPs:

    recipe.yaml, manifest.json      what was asked for; when, where and how long it was done
    space.json, entries.json        the width groups; what each method found
    supernet/50pct/stage-1, -2      the supernets, their scores and their results
    models/50pct-cafenet-t/seed-0   the slim model
    report.html                     the page

A run of one stage has one supernet for all budgets, in `supernet` itself.

The error of a damaged file names the file, its required content and a remedy. Readers that only look, such as a report,
skip damaged files and use the rest.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cafenet.common.yaml_text import read_yaml
from cafenet.errors import RecipeError, RunFileError, first_line

_Number = (int, float)
_OrNone = type(None)
_REMOVE = "remove it, and "
_AGAIN = f"{_REMOVE}the same command writes it anew"


@dataclass(frozen=True)
class RunFile:
    """A file of plain values with a known shape.

    A shape is a type (or several), a list of a shape, or a dictionary of the keys that must be there: `{"rows":
    [{"method": str}]}`.
    """

    name: str
    """Name of the file in its directory."""
    holds: str
    """Description of the content, for error messages."""
    shape: Any
    """Shape of the content."""
    remedy: str = _AGAIN
    """Advice for a damaged file, for error messages."""


RECIPE = RunFile(
    "recipe.yaml", "the recipe of a run", {}, "put this run's own recipe in its place, or use another directory"
)
MANIFEST = RunFile(
    "manifest.json",
    "when a run began and how long its steps took",
    {"seconds": dict, "again": {"sentence": str, "command": str}},
)
SPACE = RunFile(
    "space.json",
    "the width groups of a model",
    {"groups": [{"name": str, "layers": list, "channels": int, "bin_size": int, "num_bins": int}], "frozen": list},
)
ENTRIES = RunFile(
    "entries.json",
    "what the methods of a run found",
    [{"method": str, "budget": str, "channels": (dict, _OrNone), "search_score": (*_Number, _OrNone)}],
)
RESULTS = RunFile(
    "results.json",
    "the table of a run",
    {
        "rows": [
            {
                "method": str,
                "budget": str,
                "flops": _Number,
                "params": _Number,
                "latency_ms": _Number,
                "accuracies": list,
                "search_score": (*_Number, _OrNone),
                "widths": dict,
            }
        ]
    },
)
DETECTION_RESULTS = RunFile(
    "results.json",
    "the table of a detection run",
    {
        "detectors": [
            {
                "backbone": str,
                "key": str,
                "framework": str,
                "pretraining": str,
                "flops": _Number,
                "params": _Number,
                "seeds": list,
                "scores": list,
                "per_class": list,
            }
        ],
        "reference": list,
    },
)
EVALUATION = RunFile(
    "evaluation.json", "a model's accuracy on the test set", {"accuracy": _Number, "num_examples": int}
)
DETECTION_EVALUATION = RunFile(
    "evaluation.json",
    "a detector's average precision on the test set",
    {"mAP": (*_Number, _OrNone), "per_class": dict, "curves": dict},
)
DETECTIONS = RunFile(
    "detections.json",
    "what a detector found",
    [{"image_id": (int, str), "category_id": int, "score": _Number, "bbox": list}],
)
SAMPLES = RunFile(
    "samples.json", "images for the report", {"classes": list, "categories": list, "images": [{"boxes": list}]}
)
STAGES = RunFile(
    "stages.json",
    "the stages of a search",
    {"num_stages": int, "alpha": _Number, "carry_weights": bool},
    "remove it and give the same stages as before, or use another directory",
)
LATENCIES = RunFile(
    "latencies.json",
    "the latencies that a search began with",
    {"asked": dict, "measured": {"limit_ms": _Number, "full_ms": _Number}},
    "remove it to measure anew, or use another directory",
)
TRAINED = RunFile(
    "trained.json",
    "whether the model of a search came trained",
    {"asked": dict, "is_trained": bool, "sentence": str},
    "remove it to look again",
)
GAIN = RunFile(
    "gain.json",
    "what a search gained",
    {"identity": dict, "gain": {"metric": str, "models": [{"name": str, "score": _Number}]}},
    "remove it, and the same call measures anew",
)
START = RunFile(
    "start.json", "what a training began with", dict, "remove its directory to train anew, or use another one"
)

LOG = "log.jsonl"
JOURNAL = "trials.journal"
LATENCY = "latency.json"
REPORT = "report.html"
SLIM = "slim.pt"
UNIFORM = "uniform.pt"
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

FORMAT_VERSION = 2
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


def read_file(file: RunFile, directory: Path) -> Any:
    """Reads a file that must exist and be complete.

    Args:
        file: Description of the file.
        directory: Directory of the file.

    Returns:
        The content.

    Raises:
        RunFileError: If the file is missing or damaged.
    """
    path = directory / file.name
    if not path.exists():
        remedy = file.remedy.removeprefix(_REMOVE)
        raise RunFileError(f"{path} must hold {file.holds}, but is not there; {remedy}")
    content, problem = _content(path, file.shape)
    if problem:
        raise RunFileError(f"{path} must hold {file.holds}, but {problem}; {file.remedy}")
    return content


def read_if_there(file: RunFile, directory: Path) -> Any:
    """Reads a file that may be missing, but must not be damaged.

    Args:
        file: Description of the file.
        directory: Directory of the file.

    Returns:
        The content, or None if there is no such file.

    Raises:
        RunFileError: If the file is damaged.
    """
    return read_file(file, directory) if (directory / file.name).exists() else None


def read_what_is_left(file: RunFile, directory: Path, problems: list[str], *, must_exist: bool = False) -> Any:
    """Reads a file that may be missing or damaged, for readers that only look.

    Args:
        file: Description of the file.
        directory: Directory of the file.
        problems: List to which the error message of a damaged file is added.
        must_exist: Whether a missing file is a problem, too.

    Returns:
        The content, or None if the file is missing or damaged.
    """
    try:
        return read_file(file, directory) if must_exist else read_if_there(file, directory)
    except RunFileError as error:
        problems.append(str(error))
        return None


def gone(directory: Path) -> RunFileError:
    """Creates the error for a directory that was removed while it was in use.

    Args:
        directory: The directory.

    Returns:
        The error, which the caller raises.
    """
    return RunFileError(
        f"the directory {directory} must stay while it is used, but was removed or moved away; put it back to go on "
        "from its last checkpoint, or start again from the beginning"
    )


def read_log(path: Path, keys: Sequence[str] = (), damaged: list[int] | None = None) -> list[dict[str, Any]]:
    """Reads a log of one JSON object per line. Incomplete or damaged lines are left out.

    Args:
        path: Path of the log, which may be missing.
        keys: Keys that must hold numbers. Lines without them are left out.
        damaged: List to which the numbers of the lines that are left out are added, counted from 1.

    Returns:
        The lines in order.
    """
    if not path.is_file():
        return []
    lines = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            content = None
        if isinstance(content, dict) and all(isinstance(content.get(key), _Number) for key in keys):
            lines.append(content)
        elif damaged is not None:
            damaged.append(number)
    return lines


def _content(path: Path, shape: Any) -> tuple[Any, str]:
    """The content of a file, and a description of its fault (empty if there is none)."""
    try:
        raw = path.read_bytes()
        content = read_yaml(raw.decode(), path.name) if path.suffix == ".yaml" else json.loads(raw)
    except OSError as error:
        return None, f"cannot be read ({error.strerror})"
    except (ValueError, RecursionError, RecipeError) as error:
        return None, "is empty" if not raw.strip() else f"is damaged ({first_line(error)})"
    return content, _fault(content, shape, "it")


def _fault(value: Any, shape: Any, place: str) -> str:
    """Describes the first place at which a value differs from its shape; an empty text means that it fits."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{place} is no dictionary"
        missing = [key for key in shape if key not in value]
        if missing or not value:
            return f"{place} has no {', '.join(missing)}" if missing else f"{place} is empty"
        faults = [_fault(value[key], inner, key) for key, inner in shape.items()]
    elif isinstance(shape, list):
        if not isinstance(value, list):
            return f"{place} is no list"
        faults = [_fault(each, shape[0], f"{place}[{number}]") for number, each in enumerate(value)]
    else:
        kinds = shape if isinstance(shape, tuple) else (shape,)
        names = " or ".join("none" if kind is _OrNone else kind.__name__ for kind in kinds)
        return "" if isinstance(value, kinds) else f"{place} is no {names}"
    return next((fault for fault in faults if fault), "")
