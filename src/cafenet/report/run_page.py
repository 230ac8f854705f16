"""The page of a run: the verdict first, then what supports it, then everything else, folded."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cafenet.common.files import write_text
from cafenet.common.job_progress import duration
from cafenet.common.run_places import REPORT
from cafenet.report.figure_html import figure_part
from cafenet.report.figures import all_figures
from cafenet.report.html import data, document, folded, masthead, row, table, text
from cafenet.report.models import Models, models_of
from cafenet.report.results_table import results_html
from cafenet.report.run_records import RunRecord, read_run
from cafenet.report.search_charts import points
from cafenet.report.verdict import verdict_html


def write_report(directory: Path, path: Path | None = None) -> Path:
    """Write the page of a run.

    Args:
        directory: The run directory.
        path: The file to write, by default `report.html` in the run directory. Its directory is made.

    Returns:
        The path of the page.

    Raises:
        RecipeError: If the directory holds no run.
    """
    path = directory / REPORT if path is None else path
    page = report_html(read_run(directory))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)
    return path


def report_html(run: RunRecord) -> str:
    """Return the page of a run.

    Args:
        run: The records of the run.

    Returns:
        The HTML.
    """
    figures, models = all_figures(run), models_of(run)
    parts = [
        masthead("Report", run.name, run.recipe.get("description") or run.name),
        *_top(run, models),
        *(figure_part(name, figure) for name, figure in figures.items() if not figure.is_detail),
        '<h2 class="details">Details</h2>',
        *(figure_part(name, figure) for name, figure in figures.items() if figure.is_detail),
        _widths(models, run.space),
        _frozen(run),
        _recipe(run),
        *(data(name, block) for name, block in points(run).items()),
    ]
    return document(f"CafeNet: {run.name}", parts)


def _top(run: RunRecord, models: Models | None) -> list[str]:
    """Return the verdict, what is damaged or missing, and the table."""
    verdict = "" if models is None else verdict_html(models, run.space, run.warnings)
    doubts = [] if verdict else run.warnings
    return [
        verdict,
        *(f'<p class="missing">Warning: {text(line)}.</p>' for line in doubts),
        *(f'<p class="missing">Damaged: {text(line)}.</p>' for line in run.problems),
        *(f'<p class="missing">Not there yet: {text(line)}.</p>' for line in run.missing()),
        "" if models is None else results_html(run, models),
    ]


def _widths(models: Models | None, space: Mapping[str, Any] | None) -> str:
    """Return the widths of every model, group by group, to read and to copy."""
    shown = [] if models is None else [each for each in models.models if each.budget and each.widths]
    if not shown or space is None:
        return ""
    head = ["width group", "full", *(each.name for each in shown)]
    body = [
        row([group["name"], group["channels"], *(each.widths.get(group["name"], "-") for each in shown)])
        for group in space["groups"]
    ]
    return folded("All widths", table(head, body), "widths")


def _frozen(run: RunRecord) -> str:
    """Return the table of frozen layers."""
    frozen = (run.space or {}).get("frozen", [])
    if not frozen:
        return ""
    rows = [row([each["name"], each["channels"], each["reason"]], texts=(2,)) for each in frozen]
    return folded("What was frozen, and why", table(("layer", "channels", "reason"), rows))


def _recipe(run: RunRecord) -> str:
    """Return the command and the recipe that reproduce the run."""
    again = run.manifest.get("again") or {"sentence": "The recipe is below", "command": ""}
    command = again["command"].replace("{name}", run.name)
    return reproduce(run.recipe, run.manifest, command, again["sentence"])


def reproduce(
    recipe: Mapping[str, Any],
    manifest: Mapping[str, Any],
    command: str,
    sentence: str = "Save the recipe below as recipe.yaml",
) -> str:
    """Return how a run is made again: its command, its recipe, and the versions and machine that it ran on.

    Args:
        recipe: The recipe as plain values.
        manifest: The manifest; empty if it could not be read.
        command: The command.
        sentence: Advice about the recipe.

    Returns:
        The HTML.
    """
    facts = {key: manifest.get(key) for key in ("started", "finished", "git_revision", "versions", "hardware")}
    inside = (
        f"<p>{text(sentence)}{_time_taken(manifest)}.</p><pre>{text(command)}</pre>"
        f"<pre>{text(yaml.safe_dump(dict(recipe), sort_keys=False))}</pre>"
    )
    return folded("Reproduce it", inside) + folded(
        "Versions and hardware", f"<pre>{text(json.dumps(facts, indent=1))}</pre>"
    )


def _time_taken(manifest: Mapping[str, Any]) -> str:
    """Return the end of a sentence that says how long a run took, or nothing if that is not known."""
    seconds = manifest.get("seconds")
    return "" if seconds is None else f"; this run took {duration(sum(seconds.values()))} in all"
