"""What `cafenet.search` hands back: a slim model with its widths, or several of them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, overload

from torch import nn

from cafenet.errors import BudgetError, RunFileError
from cafenet.searching.result import FoundWidths
from cafenet.space.export import export
from cafenet.space.slim_file import save
from cafenet.space.width_space import WidthSpace


@dataclass(frozen=True, eq=False, repr=False)
class SearchResult:
    """The slim model of one budget and what is known of it."""

    model: nn.Module
    """The slim model: trained if the search was told to, else with the supernet's weights."""
    found: FoundWidths
    """Everything that the search of the widths found."""
    space: WidthSpace
    """The width space of the original model."""
    example_inputs: Any = field(repr=False)
    """What the model was traced with."""
    directory: Path | None = None
    """Where the search has kept its files; None if it was given no directory."""

    @property
    def budget(self) -> str:
        """The budget as it was written."""
        return self.found.budget

    @property
    def widths(self) -> Mapping[str, int]:
        """The number of channels that each group keeps, by name."""
        return self.found.widths

    @property
    def channels(self) -> Mapping[str, list[int]]:
        """The channels that each group keeps of the original model: what `WidthSpace.extract(channels=...)` takes."""
        return self.found.channels

    @property
    def costs(self) -> Mapping[str, float]:
        """The slim model's flops (one multiply-add is one) and params, and latency_ms if it was measured."""
        return self.found.costs

    @property
    def score(self) -> float:
        """The metric of the widths in the supernet on the validation data, before any training of the slim model."""
        return self.found.score

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the slim model to a file that `cafenet.load(path, model)` reads.

        Args:
            path: The file, by custom with the ending `.pt`.
        """
        save(self.model, path)

    def export(self, path: str | os.PathLike[str], kind: str | None = None) -> float:
        """Write the slim model for deployment, read it back and compare the outputs.

        Args:
            path: The file; its ending (`.pt2`, `.onnx`, `.pt`) says the format.
            kind: The format, if the ending does not say it.

        Returns:
            The largest difference of the outputs, relative to the largest output.
        """
        return export(self.model, self.example_inputs, path, kind)

    def report(self) -> Path:
        """Write the page of the search (`report.html`) into its directory.

        Returns:
            The path of the page.

        Raises:
            RunFileError: The search was given no directory, so that it has kept nothing.
        """
        if self.directory is None:
            raise RunFileError(
                "a report needs the directory of the search, but this one has none; give cafenet.search a directory="
            )
        # The package of reports stands above this one, so it is looked up when a page is asked for.
        path: Path = import_module("cafenet.report.run_page").write_report(self.directory)
        return path

    def __repr__(self) -> str:
        return repr(self.found)

    def _repr_html_(self) -> str:
        return self.found._repr_html_()


class SearchResults(Sequence[SearchResult]):
    """The results of several budgets, in the order asked for; also by budget: `results["25%"]`."""

    def __init__(self, results: Sequence[SearchResult]) -> None:
        self._results = tuple(results)

    @property
    def budgets(self) -> tuple[str, ...]:
        """The budgets as they were written."""
        return tuple(result.budget for result in self._results)

    @overload
    def __getitem__(self, key: int | str) -> SearchResult: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[SearchResult, ...]: ...
    def __getitem__(self, key: int | str | slice) -> SearchResult | tuple[SearchResult, ...]:
        if not isinstance(key, str):
            return self._results[key]
        for result in self._results:
            if result.budget == key.strip():
                return result
        raise BudgetError(f"a budget must be one of {', '.join(self.budgets)}, but is {key!r}")

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[SearchResult]:
        return iter(self._results)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._results))

    def _repr_html_(self) -> str:
        return "".join(result._repr_html_() for result in self._results)
