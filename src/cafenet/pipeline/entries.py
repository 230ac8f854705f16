"""Entries of a run or a search: for each method and budget, the channels that the method keeps."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from cafenet.common.files import write_json
from cafenet.common.read_files import read_if_there
from cafenet.common.run_files import ENTRIES
from cafenet.common.run_places import slug
from cafenet.errors import RecipeError


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


def write_entries(entries: Sequence[Entry], directory: Path) -> None:
    """Write what every method found.

    Args:
        entries: The entries.
        directory: The run directory.
    """
    document = [
        {**asdict(entry), "supernet": entry.supernet and entry.supernet.relative_to(directory).as_posix()}
        for entry in entries
    ]
    write_json(directory / ENTRIES.name, document)


def read_entries(directory: Path) -> list[Entry]:
    """Read what the methods of a run or a search found.

    Args:
        directory: The run directory.

    Returns:
        The entries.

    Raises:
        RecipeError: If the directory has no finished search.
    """
    found = read_if_there(ENTRIES, directory)
    if found is None:
        raise RecipeError(f"{directory} must hold a finished search, but has no {ENTRIES.name}; see `cafenet run`")
    known = [field.name for field in fields(Entry)]
    return [
        Entry(**{name: entry[name] for name in known if name in entry} | {"supernet": _supernet(entry, directory)})
        for entry in found
    ]


def _supernet(entry: dict[str, Any], directory: Path) -> Path | None:
    """Return the directory of an entry's supernet, if it has one."""
    name = entry.get("supernet")
    return directory / name if isinstance(name, str) else None
