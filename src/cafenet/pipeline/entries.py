"""Entries of a run or a search: for each method and budget, the channels that the method keeps.

The file names the width groups that the entries are about, so that those of another model are never taken for this
one's. Smallest example: `{"groups": {"conv1": 8}, "entries": [{"method": "Uniform", "budget": "50%", "channels":
{"conv1": [0, 1, 2, 3]}, "search_score": null, "supernet": null}]}`
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from cafenet.common.read_files import read_if_there
from cafenet.common.run_files import ENTRIES, SPACE
from cafenet.common.run_places import slug
from cafenet.common.write_files import write_file
from cafenet.errors import RecipeError, RunFileError


@dataclass(frozen=True)
class Entry:
    """The channels that one method found for one budget. In a run, each entry becomes a row of the table."""

    method: str
    """Name of the method, for example "CafeNet-T" or "Uniform"."""
    budget: str
    """The budget as the user wrote it; empty for the original network."""
    channels: dict[str, list[int]] | None
    """Numbers of the kept channels of each group, or None if all are kept."""
    search_score: float | None = None
    """Score on the validation data in the supernet, if the method searched one."""
    supernet: Path | None = None
    """Directory of the supernet that was searched, if there is one."""

    @property
    def key(self) -> str:
        """Name of the entry's directory: "50%" and "CafeNet-E" give "50pct-cafenet-e"."""
        return slug(self.budget, self.method)


def write_entries(entries: Sequence[Entry], groups: Mapping[str, int], directory: Path) -> None:
    """Write what every method found.

    Args:
        entries: The entries.
        groups: Number of channels of each width group of the full network, by name.
        directory: The run directory.
    """
    document = [
        {**asdict(entry), "supernet": entry.supernet and entry.supernet.relative_to(directory).as_posix()}
        for entry in entries
    ]
    write_file(ENTRIES, directory, {"groups": dict(groups), "entries": document})


def read_entries(directory: Path) -> list[Entry]:
    """Read what the methods of a run or a search found.

    Args:
        directory: The run directory.

    Returns:
        The entries.

    Raises:
        RecipeError: If the directory has no finished search.
        RunFileError: If the file is damaged, or keeps channels that its groups do not have.
    """
    content = read_if_there(ENTRIES, directory)
    if content is None:
        raise RecipeError(f"{directory} must hold a finished search, but has no {ENTRIES.name}; see `cafenet run`")
    fault = fault_of_entries(content)
    if fault:
        raise RunFileError(f"{directory / ENTRIES.name} must hold {ENTRIES.holds}, but {fault}; {ENTRIES.remedy}")
    known = [field.name for field in fields(Entry)]
    return [
        Entry(**{name: entry[name] for name in known if name in entry} | {"supernet": _supernet(entry, directory)})
        for entry in content["entries"]
    ]


def fault_of_entries(content: Mapping[str, Any], groups: Mapping[str, int] | None = None) -> str:
    """Find an entry that keeps channels which the model does not have.

    Args:
        content: The content of the file.
        groups: Number of channels of each width group as `space.json` says; None takes those of the file.

    Returns:
        A description of the fault; empty if there is none.
    """
    own = content["groups"]
    if groups is not None and own != dict(groups):
        return f"it is about other width groups than {SPACE.name}"
    for entry in content["entries"]:
        for name, kept in (entry["channels"] or {}).items():
            is_there = isinstance(kept, list) and all(
                type(each) is int and 0 <= each < own.get(name, 0) for each in kept
            )
            if not is_there or len(set(kept)) < max(len(kept), 1):
                return f"{entry['method']} {entry['budget']} keeps channels of {name} that the model does not have"
    return ""


def _supernet(entry: dict[str, Any], directory: Path) -> Path | None:
    """Return the directory of an entry's supernet, if it has one."""
    name = entry.get("supernet")
    return directory / name if isinstance(name, str) else None
