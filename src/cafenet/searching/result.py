"""What a search hands back, and its file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cafenet.common.files import write_json
from cafenet.common.tables import Shown, ranges
from cafenet.errors import StoreError

FORMAT = "cafenet-search-result"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class FoundWidths:
    """The widths found for one budget."""

    budget: str
    algorithm: str
    widths: Mapping[str, int]
    """Channels per group, by name."""
    channels: Mapping[str, list[int]]
    """The channels themselves, of the best assignment: what `WidthSpace.extract(channels=...)` takes. Those of
    a supernet may have been put in the order of importance; `cafenet.search` gives those of the user's model."""
    score: float
    """Exact: the best candidate's metric on all validation examples, or on `ScoringConfig.max_examples` of them."""
    metric: str
    costs: Mapping[str, float]
    """flops (one multiply-add is one), params, and latency_ms where it was measured."""
    usage: float
    """The share of the budget that is used."""
    num_scored: int
    """Widths in this search, and how many of them were dropped early."""
    num_dropped: int
    seed: int

    def __repr__(self) -> str:
        return self._shown().text()

    def _repr_html_(self) -> str:
        return self._shown().html()

    def _shown(self) -> Shown:
        costs = ", ".join(
            f"{value:,.2f} {name}" if name == "latency_ms" else f"{value:,.0f} {name}"
            for name, value in self.costs.items()
        )
        return Shown(
            f"{self.budget} by {self.algorithm}: {self.metric} {self.score:.4f}",
            ("group", "width", "channels"),
            [(name, width, ranges(self.channels[name])) for name, width in self.widths.items()],
            f"{costs}; {self.usage:.1%} of the budget; {self.num_scored} widths scored, {self.num_dropped} of them "
            "dropped early",
        )


def write_result(result: FoundWidths, path: Path, asked: Mapping[str, Any] | None = None) -> None:
    """Write the result as JSON, in one move, with the options that it was asked for with."""
    write_json(path, {"format": FORMAT, "format_version": FORMAT_VERSION, "asked": asked, **asdict(result)})


def is_result_of(path: Path, asked: Mapping[str, Any]) -> bool:
    """Whether the file holds what a search with these options found."""
    return path.exists() and _read(path).get("asked") == asked


def read_result(path: Path) -> FoundWidths:
    """A result that was written before."""
    content = _read(path)
    content.pop("asked", None)
    try:
        return FoundWidths(**content)
    except TypeError as error:
        raise _unreadable(path, error) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        if content.pop("format") != FORMAT or content.pop("format_version") != FORMAT_VERSION:
            raise ValueError("another format")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, error) from error
    return content


def _unreadable(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"{path} must be a search result of this version, but: {error or 'it is damaged'}; remove it, and the search "
        "makes it anew from its scores"
    )
