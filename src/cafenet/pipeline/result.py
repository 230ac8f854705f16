"""The results of `cafenet.search`: a slim model with its widths, or several of them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, overload

from torch import nn

from cafenet.common.picture import Picture
from cafenet.common.tables import Shown
from cafenet.errors import BudgetError, RunFileError
from cafenet.modules.copying import RECORD
from cafenet.pipeline.gain import Gain
from cafenet.pipeline.gain_text import shown_gain
from cafenet.scoring.examples import Data
from cafenet.searching.result import FoundWidths
from cafenet.space.bins import flops_sensitive_bins
from cafenet.space.description import describe_space
from cafenet.space.export import export
from cafenet.space.slim_file import save
from cafenet.space.width_space import WidthSpace

_PICTURES = "cafenet.report.pictures"


@dataclass(frozen=True, eq=False, repr=False)
class SearchResult:
    """The slim model of one budget, with its widths, costs and score.

    `cafenet.search` creates it. Printed, it says what was gained, and shows a table of the groups with their widths.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from torch.utils.data import TensorDataset
        >>> import cafenet
        >>> model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
        >>> data = TensorDataset(torch.randn(256, 1, 4, 4), torch.arange(256) % 2)
        >>> options = cafenet.SearchOptions(algorithm=cafenet.RandomSearch(samples=4))
        >>> result = cafenet.search(model, data, data, "50%", epochs=1, options=options, quiet=True)
        >>> result.budget, result.widths, result.costs["flops"]
        ('50%', {'0': 4}, 176.0)
        >>> result.model(torch.zeros(1, 1, 4, 4)).shape
        torch.Size([1, 2])
    """

    model: nn.Module
    """The slim model, fine-tuned; if the search was asked not to, it has the supernet's weights. It has the widths
    found, or Uniform's if these have the better score on the validation data after the same training."""
    found: FoundWidths
    """The widths that the search found, with their costs, their score and the settings that they belong to."""
    space: WidthSpace
    """The width space of the original model."""
    example_inputs: Any = field(repr=False)
    """Inputs that the model was traced with."""
    directory: Path | None = None
    """Directory with the files of the search, or None if the search was given no directory."""
    gain: Gain | None = None
    """The model before, the slim model and Uniform side by side: costs, latency, size and score of each."""
    uniform: nn.Module | None = field(default=None, repr=False)
    """The Uniform model of the comparison, trained like the slim model; None if it was not asked for."""
    searched: nn.Module | None = field(default=None, repr=False)
    """The model with the widths found, which is `model` unless Uniform is; None if there was no comparison."""

    @property
    def budget(self) -> str:
        """The budget as the user wrote it."""
        return self.found.budget

    @property
    def is_uniform(self) -> bool:
        """True if the slim model has Uniform's widths, since these were better after the same training."""
        return self.gain is not None and self.gain.takes_uniform

    @property
    def widths(self) -> Mapping[str, int]:
        """Number of the slim model's channels in each group, by group name."""
        return getattr(self.model, RECORD).widths if self.is_uniform else self.found.widths

    @property
    def channels(self) -> Mapping[str, list[int]]:
        """Kept channels of the original model for each group, as `WidthSpace.extract(channels=...)` takes them. Those
        of Uniform are numbered in the order of their importance."""
        return getattr(self.model, RECORD).channels if self.is_uniform else self.found.channels

    @property
    def costs(self) -> Mapping[str, float]:
        """Costs of the slim model: flops (one multiply-add counts as one), params, and latency_ms if measured."""
        if self.gain is None or not self.is_uniform:
            return self.found.costs
        return {"flops": float(self.gain.after.flops), "params": float(self.gain.after.params)}

    @property
    def score(self) -> float:
        """Metric of the widths found in the supernet on the validation data, before any training of the slim model. The
        slim model's own score is `gain.after.score`."""
        return self.found.score

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the slim model to a file that `cafenet.load(path, model)` reads.

        Args:
            path: The file, usually with the ending `.pt`.
        """
        save(self.model, path)

    def export(
        self,
        path: str | os.PathLike[str],
        kind: str | None = None,
        *,
        quantize: Literal["int8"] | None = None,
        calibration: Data | None = None,
    ) -> float:
        """Write the slim model for deployment, read it back and compare the outputs.

        Args:
            path: The file. Its ending (`.pt2`, `.onnx`, `.xml` for OpenVINO, `.pte` for ExecuTorch, `.pt`) determines
                the format.
            kind: The format, if the ending does not determine it.
            quantize: "int8" rounds weights and activations to 8 bits.
            calibration: Training data for `quantize`.

        Returns:
            The largest difference of the outputs, relative to the largest output.
        """
        return export(self.model, self.example_inputs, path, kind, quantize=quantize, calibration=calibration)

    def report(self) -> Path:
        """Write the page of the search (`report.html`) into its directory.

        Returns:
            The path of the page.

        Raises:
            RunFileError: If the search was given no directory, so that no files were kept.
        """
        if self.directory is None:
            raise RunFileError(
                "a report needs the directory of the search, but this one has none; give cafenet.search a directory="
            )
        # The package of reports stands above this one, so it is looked up when a page is asked for.
        path: Path = import_module("cafenet.report.run_page").write_report(self.directory)
        return path

    def plot_widths(self) -> Picture:
        """Draw the width of every layer before and after, as the report does.

        Returns:
            The figure, which a notebook shows by itself; `save` writes it as an SVG file.

        Raises:
            RunFileError: If the model has no layer whose width varies.
        """
        space = describe_space(self.space, flops_sensitive_bins(self.space))
        picture: Picture = import_module(_PICTURES).widths_picture(space, {"CafeNet": self.widths}, self.budget)
        return picture

    def plot_search(self) -> Picture:
        """Draw the scores of all widths that the search tried, against their FLOPs, as the report does.

        Returns:
            The figure, which a notebook shows by itself; `save` writes it as an SVG file.

        Raises:
            RunFileError: If the search was given no directory, so that no scores were kept.
        """
        if self.directory is None:
            raise RunFileError(
                "a plot of the search needs its directory, but this one has none; give the search a directory="
            )
        picture: Picture = import_module(_PICTURES).search_picture(self.directory, self.budget)
        return picture

    def __str__(self) -> str:
        return repr(self) if self.gain is None else f"{shown_gain(self.gain).text()}\n\n{self!r}"

    def __repr__(self) -> str:
        return self._shown_uniform().text() if self.is_uniform else repr(self.found)

    def _repr_html_(self) -> str:
        gained = "" if self.gain is None else shown_gain(self.gain).html()
        return gained + (self._shown_uniform().html() if self.is_uniform else self.found._repr_html_())

    def _shown_uniform(self) -> Shown:
        """Return the table of Uniform's widths beside those found."""
        costs = ", ".join(f"{value:,.0f} {name}" for name, value in self.costs.items())
        rows = [(name, width, self.found.widths[name]) for name, width in self.widths.items()]
        return Shown(f"{self.budget}: Uniform's widths", ("group", "width", "found by the search"), rows, costs)


class SearchResults(Sequence[SearchResult]):
    """The results of several budgets, in the order of the request. `results["25%"]` finds one by its budget.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from torch.utils.data import TensorDataset
        >>> import cafenet
        >>> model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
        >>> data = TensorDataset(torch.randn(256, 1, 4, 4), torch.arange(256) % 2)
        >>> options = cafenet.SearchOptions(algorithm=cafenet.RandomSearch(samples=4))
        >>> results = cafenet.search(model, data, data, ["75%", "50%"], epochs=1, options=options, quiet=True)
        >>> results.budgets
        ('75%', '50%')
        >>> results[0].widths, results["50%"].widths
        ({'0': 6}, {'0': 4})
    """

    def __init__(self, results: Sequence[SearchResult]) -> None:
        """Hold the results.

        Args:
            results: One result for each budget.
        """
        self._results = tuple(results)

    @property
    def budgets(self) -> tuple[str, ...]:
        """The budgets as the user wrote them."""
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

    def report(self) -> Path:
        """Write the page of the search (`report.html`), with all budgets, into its directory.

        Returns:
            The path of the page.

        Raises:
            RunFileError: If the search was given no directory, so that no files were kept.
        """
        return self._results[0].report()

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[SearchResult]:
        return iter(self._results)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self._results))

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._results))

    def _repr_html_(self) -> str:
        return "".join(result._repr_html_() for result in self._results)
