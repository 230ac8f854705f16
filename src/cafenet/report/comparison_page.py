"""The page of several runs: one table, and their figures over each other."""

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure

from cafenet.report.comparison import Comparison, Line, cells, sentences, spread, total_seconds
from cafenet.report.figure_style import OTHER, colour, label_of, legend, mark, single, smoothed
from cafenet.report.figures import histogram, score_label
from cafenet.report.html import document, figure_part, row, table, text
from cafenet.report.run_records import RunRecord, StudyRecord

_CAPTIONS = {
    "sweep": (
        "Accuracy and time against {key}",
        "Error bars are standard deviations over seeds. The time is that of the whole run.",
    ),
    "accuracy-flops": ("Accuracy against FLOPs", "The final models of all runs; point at one to see its numbers."),
    "histogram": ("Scores of all widths", "Scores that each run's supernet gives to the searched widths."),
    "training": ("Supernet training", "Smoothed loss of the sampled widths."),
}


def comparison_html(comparison: Comparison) -> str:
    """Return the page.

    Args:
        comparison: The runs.

    Returns:
        The HTML.
    """
    lines = [text(line) + "." for line in sentences(comparison)]
    missing = [f"{run.name}: {line}" for run in comparison.runs for line in (*run.problems, *run.missing())]
    head = ["run", *comparison.keys, "method", "budget", "FLOPs", "accuracy", "time"]
    body = [
        row(cells(line, comparison.keys), "own" if line.row.method.startswith("CafeNet") else "")
        for line in comparison.lines
    ]
    key = comparison.swept() or ""
    return document(
        "CafeNet: runs compared",
        [
            f"<h1>{len(comparison.runs)} runs compared</h1>",
            f'<div class="verdict">{"<br>".join(lines)}</div>' if lines else "",
            *(f'<p class="missing">Not there yet: {text(line)}.</p>' for line in missing),
            table(head, body),
            *(
                figure_part(name, _CAPTIONS[name][0].format(key=key), _CAPTIONS[name][1], figure)
                for name, figure in comparison_figures(comparison).items()
            ),
        ],
    )


def comparison_figures(comparison: Comparison) -> dict[str, Figure]:
    """Draw every figure for which there is data.

    Args:
        comparison: The runs.

    Returns:
        The figures by name.
    """
    makers: dict[str, Callable[[Comparison], Figure | None]] = {
        "sweep": sweep,
        "accuracy-flops": accuracy_against_flops,
        "histogram": score_histograms,
        "training": training_curves,
    }
    made = {name: make(comparison) for name, make in makers.items()}
    return {name: figure for name, figure in made.items() if figure is not None}


def sweep(comparison: Comparison) -> Figure | None:
    """Draw accuracy and time against the one setting that was varied, as the paper shows r and lambda.

    Args:
        comparison: The runs.

    Returns:
        The figure, or None without data.
    """
    key = comparison.swept()
    if key is None or len(comparison.own) < 2:
        return None
    figure, axes = single()
    times = axes.twinx()
    kinds = {(line.row.method, line.row.budget): None for line in comparison.own}
    for number, kind in enumerate(kinds):
        lines = [line for line in comparison.own if (line.row.method, line.row.budget) == kind]
        lines.sort(key=lambda line: line.settings[key])
        places = [line.settings[key] for line in lines]
        means, errors = zip(*(spread(line.row) for line in lines), strict=True)
        axes.errorbar(places, means, errors, marker="o", capsize=3, color=colour(number), label=" ".join(kind))
    runs = {line.settings[key]: total_seconds(line.run) / 60 for line in comparison.own}
    times.plot(*zip(*sorted(runs.items()), strict=True), "s--", markersize=4, color=OTHER, alpha=0.6)
    axes.set(xlabel=key, ylabel="test accuracy, %")
    times.set_ylabel("time of the run, minutes (dashed)", color=OTHER)
    axes.legend(fontsize=7)
    return figure


def accuracy_against_flops(comparison: Comparison) -> Figure | None:
    """Draw the final models of all runs.

    Args:
        comparison: The runs.

    Returns:
        The figure, or None without data.
    """
    if not comparison.lines:
        return None
    figure, axes = single()
    shown: dict[str, list[Line]] = {}
    for line in comparison.lines:
        shown.setdefault(line.run.name if line in comparison.own else line.row.method, []).append(line)
    for number, (name, lines) in enumerate(shown.items()):
        for place, line in enumerate(lines):
            middle, error = spread(line.row)
            (dot,) = axes.plot(
                line.row.flops / 1e6,
                middle,
                "*" if line in comparison.own else "o",
                markersize=10 if line in comparison.own else 6,
                color=colour(number),
                label=label_of(name) if place == 0 else None,
            )
            mark(dot, series=number, tip=f"{line.label}: {line.row.accuracy} at {line.row.flops:,} FLOPs")
            (bar,) = axes.plot([line.row.flops / 1e6] * 2, [middle - error, middle + error], color=colour(number), lw=1)
            mark(bar, series=number)
    axes.set(xlabel="FLOPs, millions (one multiply-add is one)", ylabel="test accuracy, %")
    legend(axes, range(len(shown)))
    return figure


def score_histograms(comparison: Comparison) -> Figure | None:
    """Draw the scores of the runs' own searches over each other (paper, a12).

    Args:
        comparison: The runs.

    Returns:
        The figure, or None without data.
    """
    studies = {name: study.trials for name, study in _own_studies(comparison.runs).items() if study.trials}
    return histogram(studies, score_label(comparison.runs[0]))


def training_curves(comparison: Comparison) -> Figure | None:
    """Draw the losses of the runs' own supernets.

    Args:
        comparison: The runs.

    Returns:
        The figure, or None without data.
    """
    studies = {name: study for name, study in _own_studies(comparison.runs).items() if len(study.log) > 1}
    if not studies:
        return None
    figure, axes = single()
    for number, (name, study) in enumerate(studies.items()):
        losses = [line["loss"] for line in study.log]
        (line,) = axes.plot(
            [each["epoch"] for each in study.log], smoothed(losses), color=colour(number), label=label_of(name)
        )
        mark(line, series=number)
    axes.set(xlabel="epochs", ylabel="training loss of the sampled widths")
    legend(axes, range(len(studies)))
    return figure


def _own_studies(runs: Sequence[RunRecord]) -> dict[str, StudyRecord]:
    """Return every run's supernets except those of the fixed pattern, under the run's name."""
    found = {}
    for run in runs:
        own = [study for study in run.studies if not study.name.startswith("supernet-fixed")]
        for study in own:
            found[run.name if len(own) == 1 else f"{run.name} {study.name}"] = study
    return found
