"""The report's figures of one search result, each as a picture for a notebook."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cafenet.common.picture import Picture
from cafenet.common.run_places import SUPERNET, slug
from cafenet.errors import RunFileError
from cafenet.report.figure_html import standalone
from cafenet.report.kinds import kind_of
from cafenet.report.models import Model
from cafenet.report.plot import Figure
from cafenet.report.run_records import RunRecord, read_run
from cafenet.report.search_charts import scores_against_flops
from cafenet.report.width_charts import width_figures


def widths_picture(space: Mapping[str, Any], widths: Mapping[str, Mapping[str, int]], budget: str) -> Picture:
    """Draw the width of every layer before and after.

    Args:
        space: The description of the width space, as in `space.json`.
        widths: Widths of each method's model: of CafeNet and, if they are known, of Uniform.
        budget: The budget.

    Returns:
        The picture.

    Raises:
        RunFileError: If the model has no layer whose width varies.
    """
    run = RunRecord(path=Path(), recipe={}, manifest={}, space=dict(space), entries=[], results=None)
    figures = width_figures(run, [_model(method, budget, each) for method, each in widths.items()])
    if not figures:
        raise RunFileError("a picture of widths needs a layer whose width varies, but the model has none")
    return _picture(figures["widths"])


def _model(method: str, budget: str, widths: Mapping[str, int]) -> Model:
    """Return widths as a model that nothing else is known of."""
    return Model(method, kind_of(method), budget, 0, 0, 0.0, None, None, (), widths)


def search_picture(directory: Path, budget: str) -> Picture:
    """Draw the scores of all widths that the search of a budget tried, against their FLOPs.

    Args:
        directory: The directory of the search.
        budget: The budget as the user wrote it.

    Returns:
        The picture.

    Raises:
        RecipeError: If the directory holds no search.
        RunFileError: If the directory holds no scored width of this budget.
    """
    figure = scores_against_flops(_of_budget(read_run(directory), budget))
    if figure is None:
        raise RunFileError(
            f"a picture of a search needs scored widths, but {directory} holds none for {budget}; search again with it"
        )
    return _picture(figure)


def _of_budget(run: RunRecord, budget: str) -> RunRecord:
    """Return the records of one budget of a search."""
    pairs = [(entry, gain) for entry, gain in zip(run.entries, run.gains, strict=False) if entry["budget"] == budget]
    place = f"{SUPERNET}/{slug(budget)}"
    studies = [study for study in run.studies if f"{study.name}/".startswith(f"{place}/")]
    return replace(run, entries=[one for one, _ in pairs], gains=[other for _, other in pairs], studies=studies)


def _picture(figure: Figure) -> Picture:
    """Return a figure as a picture."""
    return Picture(figure.title, figure.caption, standalone(figure))
