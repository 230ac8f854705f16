"""The result of a width search, and the JSON file that holds it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cafenet.common.files import write_json
from cafenet.common.seals import sealed, unsealed
from cafenet.common.tables import Shown, ranges
from cafenet.errors import StoreError
from cafenet.scoring.metrics import shown_score

FORMAT = "cafenet-search-result"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class FoundWidths:
    """The widths found for one budget.

    Printed, it shows a table of the groups with their widths and channels.

    Example:
        >>> from cafenet.searching.result import FoundWidths
        >>> result = FoundWidths(
        ...     budget="50%",
        ...     algorithm="trend",
        ...     widths={"conv1": 2},
        ...     channels={"conv1": [0, 1]},
        ...     score=0.81,
        ...     metric="accuracy",
        ...     costs={"flops": 1000.0, "params": 60.0},
        ...     usage=0.99,
        ...     num_scored=300,
        ...     num_dropped=0,
        ...     seed=0,
        ... )
        >>> result.widths["conv1"]
        2
    """

    budget: str
    """The budget as the user wrote it."""
    algorithm: str
    """Name of the search algorithm, for example "trend"."""
    widths: Mapping[str, int]
    """Number of kept channels of each group, by group name."""
    channels: Mapping[str, list[int]]
    """Numbers of the kept channels of each group, for the best assignment of bins, as
    `WidthSpace.extract(channels=...)` takes them. A supernet may hold its channels in the order of their importance;
    the results of `cafenet.search` number the channels of the user's own model."""
    score: float
    """Exact score: the metric of the best candidate on all validation examples, or on `ScoringConfig.max_examples` of
    them."""
    metric: str
    """Name of the metric."""
    costs: Mapping[str, float]
    """Costs by name: flops (one multiply-add counts as one), params, and latency_ms and file_bytes if they were
    measured."""
    usage: float
    """Share of the budget that the widths use."""
    num_scored: int
    """Number of width vectors that this search scored."""
    num_dropped: int
    """Number of scored width vectors that were dropped early."""
    seed: int
    """Seed of the search."""

    def __repr__(self) -> str:
        return self._shown().text()

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return self._shown().html()

    def _shown(self) -> Shown:
        """Return the content of the table."""
        costs = ", ".join(
            f"{value:,.2f} {name}" if name == "latency_ms" else f"{value:,.0f} {name.replace('_', ' ')}"
            for name, value in self.costs.items()
        )
        return Shown(
            f"{self.budget} by {self.algorithm}: {shown_score(self.metric, self.score)} in the supernet",
            ("group", "width", "channels"),
            [(name, width, ranges(self.channels[name])) for name, width in self.widths.items()],
            f"{costs}; {self.usage:.1%} of the budget; {self.num_scored} widths scored, {self.num_dropped} of them "
            "dropped early",
        )


def write_result(result: FoundWidths, path: Path, asked: Mapping[str, Any] | None = None) -> None:
    """Write a result as JSON; a reader never sees a half-written file.

    Args:
        result: The result.
        path: The file to write.
        asked: The options that the search was started with, as plain values; `is_result_of` compares them.
    """
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, "asked": asked, **asdict(result)}
    write_json(path, sealed(content))


def is_result_of(path: Path, asked: Mapping[str, Any]) -> bool:
    """Return whether a file holds the result of a search with these options.

    Args:
        path: The file, which may be missing.
        asked: The options of the search, as plain values.

    Returns:
        True if the file exists and its options are equal.

    Raises:
        StoreError: If the file exists but is no readable result of this version.
    """
    return path.exists() and _read(path).get("asked") == asked


def read_result(path: Path) -> FoundWidths:
    """Read a result that `write_result` wrote.

    Args:
        path: The file.

    Returns:
        The result.

    Raises:
        StoreError: If the file is no readable result of this version.
    """
    content = _read(path)
    content.pop("asked", None)
    try:
        return FoundWidths(**content)
    except TypeError as error:
        raise _unreadable(path, error) from error


def _read(path: Path) -> dict[str, Any]:
    """Read a result file as plain values."""
    content: dict[str, Any] | None
    try:
        content = unsealed(json.loads(path.read_text()))
        if content is None:
            raise ValueError("its values have another digest than it says")
        if content.pop("format") != FORMAT or content.pop("format_version") != FORMAT_VERSION:
            raise ValueError("another format")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, error) from error
    return content


def _unreadable(path: Path, error: Exception) -> StoreError:
    """Return the error for a file that is no readable result."""
    return StoreError(
        f"{path} must be a search result of this version, but: {error or 'it is damaged'}; remove it, and the search "
        "makes it anew from its scores"
    )
