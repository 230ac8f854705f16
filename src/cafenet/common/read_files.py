"""The one way in which all files of a run directory are read.

Readers that only look, such as a report, skip damaged files and use the rest.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cafenet.common.run_files import REMOVE, Number, OrNone, RunFile
from cafenet.common.seals import unsealed
from cafenet.common.yaml_text import read_yaml
from cafenet.errors import RecipeError, RunFileError, first_line


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
        remedy = file.remedy.removeprefix(REMOVE)
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
        if isinstance(content, dict) and all(isinstance(content.get(key), Number) for key in keys):
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
    if isinstance(content, dict):
        whole = unsealed(content)
        if whole is None:
            return None, "was changed or damaged since it was written (its values have another digest than it says)"
        content = whole
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
        names = " or ".join("none" if kind is OrNone else kind.__name__ for kind in kinds)
        return "" if isinstance(value, kinds) else f"{place} is no {names}"
    return next((fault for fault in faults if fault), "")
