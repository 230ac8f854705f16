"""The page of a run: everything that is known about it, the verdict first."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cafenet.common.files import write_text
from cafenet.common.run_files import REPORT
from cafenet.report.figure_style import duration
from cafenet.report.figures import all_figures, points
from cafenet.report.html import data, document, figure_part, row, table, text
from cafenet.report.run_records import RunRecord, read_run
from cafenet.runs.results import Row, claims, count

TITLES = {
    "widths": ("Width kept per layer group", "Layers whose channels are decided together are one group, named after "
               "the first of them. Pale bars are the full width."),
    "accuracy-flops": ("Accuracy against FLOPs", "Every width with a complete score; point at a dot to see it."),
    "progress": ("Search progress", "Dots are scores, and lines show the best so far (search by trend takes the "
                 "best width of a fit instead). Widths that were dropped early show their estimated score."),
    "histogram": ("Scores of all widths", "The further right, the better are the widths that the search tried."),
    "training": ("Supernet training", "The loss of the sampled widths is noisy; the line is smoothed. Epochs that "
                 "trained the full network first are not shown."),
    "bins": ("Bins", "Channels are added and dropped in bins; cheaper channels have larger bins."),
    "time": ("Time spent", "Summed over all starts of this run."),
    "attributes": ("Attributes against Uniform", "Difference of test accuracy in points, for each attribute."),
}  # fmt: skip
"""Title and caption of each figure."""


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
    parts = [
        f"<h1>{text(run.recipe.get('description') or run.name)}</h1>",
        _verdict(run),
        *(f'<p class="missing">Damaged: {text(line)}.</p>' for line in run.problems),
        *(f'<p class="missing">Not there yet: {text(line)}.</p>' for line in run.missing()),
        _table(run),
        _widths(run),
        *(figure_part(name, *TITLES[name], figure) for name, figure in all_figures(run).items()),
        *(data(name, block) for name, block in points(run).items()),
        _frozen(run),
        _recipe(run),
    ]
    return document(f"CafeNet: {run.name}", parts)


def rows_of(run: RunRecord) -> list[Row]:
    """Return the rows of a run's table, or none if there is no table yet.

    Args:
        run: The records of the run.

    Returns:
        The rows.
    """
    return [Row(**{**row, "accuracies": tuple(row["accuracies"])}) for row in (run.results or {}).get("rows", [])]


def _verdict(run: RunRecord) -> str:
    """Return the results and the claims, in the first lines of the page."""
    rows = rows_of(run)
    own = [each for each in rows if each.method.startswith("CafeNet")]
    original = next((each for each in rows if not each.budget), None)
    lines = []
    for each in own:
        kept = f"{each.flops:,} FLOPs, {each.params:,} parameters, {each.latency_ms:.2f} ms"
        before = (
            f" (original: {original.flops:,}, {original.params:,}, {original.latency_ms:.2f} ms)" if original else ""
        )
        lines.append(
            f"<b>{text(each.method)} at {text(each.budget)}: {each.accuracy}</b> on the test set; {kept}{before}."
        )
    lines += [text(line) + "." for line in claims(rows)]
    if not rows:
        lines += [
            f"<b>{text(entry['method'])} at {text(entry['budget'])}</b> scores {entry['search_score']:.4f} on the "
            "validation data in the supernet."
            for entry in run.entries
            if entry["method"].startswith("CafeNet")
        ]
    return f'<div class="verdict">{"<br>".join(lines)}</div>' if lines else ""


def _table(run: RunRecord) -> str:
    """Return the table of results."""
    rows = rows_of(run)
    if not rows:
        return ""
    body = [
        row(
            (
                each.method,
                each.budget or "-",
                count(each.flops),
                count(each.params),
                f"{each.latency_ms:.2f} ms",
                each.accuracy,
            ),
            "own" if each.method.startswith("CafeNet") else "",
        )
        for each in rows
    ]
    for each in (run.results or {}).get("reference", []):
        published = [f"{each['method']} (published)", each["budget"] or "-", each["flops"], each["params"], ""]
        body.append(row([*published, each["accuracy"]], "published"))
    num_seeds = len(rows[0].accuracies)
    note = f"Test accuracy after the last epoch, {num_seeds} seed{'s' if num_seeds > 1 else ''}"
    note += " (mean ± standard deviation)." if num_seeds > 1 else "; a single seed is no evidence of a difference."
    head = ("method", "budget", "FLOPs", "params", "latency", "accuracy")
    return f"<h2>Results</h2>{table(head, body)}<p>{note}</p>"


def _widths(run: RunRecord) -> str:
    """Return the widths of every row, group by group, to read and to copy."""
    rows = [each for each in rows_of(run) if each.budget]
    if not rows or run.space is None:
        return ""
    head = ["width group", "full", *(f"{each.method} {each.budget}" for each in rows)]
    body = [
        row([group["name"], group["channels"], *(each.widths.get(group["name"], "-") for each in rows)])
        for group in run.space["groups"]
    ]
    return f'<details id="widths"><summary>All widths</summary>{table(head, body)}</details>'


def _frozen(run: RunRecord) -> str:
    """Return the table of frozen layers."""
    frozen = (run.space or {}).get("frozen", [])
    if not frozen:
        return ""
    rows = [row([each["name"], each["channels"], each["reason"]], texts=(2,)) for each in frozen]
    return f"<h2>What was frozen, and why</h2>{table(('layer', 'channels', 'reason'), rows)}"


def _recipe(run: RunRecord) -> str:
    """Return the command and the recipe that reproduce the run."""
    manifest = run.manifest
    facts = {
        key: manifest.get(key) for key in ("started", "finished", "git_revision", "versions", "hardware", "seconds")
    }
    again = manifest.get("again") or {"sentence": "The recipe is below", "command": ""}
    command = again["command"].replace("{name}", run.name)
    recipe = text(yaml.safe_dump(run.recipe, sort_keys=False))
    return (
        f"<h2>Reproduce it</h2><p>{text(again['sentence'])}{time_taken(manifest)}.</p>"
        f"<pre>{text(command)}</pre><details><summary>recipe.yaml</summary><pre>{recipe}</pre></details>"
        f"<details><summary>versions, hardware, times</summary><pre>{text(json.dumps(facts, indent=1))}</pre>"
        "</details>"
    )


def time_taken(manifest: Mapping[str, Any]) -> str:
    """Return the end of a sentence that says how long a run took, or nothing if that is not known.

    Args:
        manifest: The manifest of the run; empty if it could not be read.

    Returns:
        The text.
    """
    seconds = manifest.get("seconds")
    return "" if seconds is None else f"; this run took {duration(sum(seconds.values()))} in all"
