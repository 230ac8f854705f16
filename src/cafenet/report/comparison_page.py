"""The page of several runs: what differs, their models side by side, and their figures over each other.

A colour is a run here. Uniform and the original keep theirs; further baselines share the original's, with a mark of
their own.
"""

from collections.abc import Callable, Sequence

from cafenet.common.job_progress import duration
from cafenet.report.comparison import Comparison, Line, sentences, shown_keys, spread, total_seconds
from cafenet.report.figure_html import figure_part
from cafenet.report.html import cards, document, masthead, text
from cafenet.report.kinds import ORIGINAL, UNIFORM, is_own, kind_of_run, shape_of
from cafenet.report.plot import Chart, Figure, Key
from cafenet.report.run_records import RunRecord, StudyRecord
from cafenet.report.scales import Scale, flops_unit, scale_of, side_by_side
from cafenet.report.search_charts import histogram, in_words, score_title
from cafenet.report.training_charts import loss_chart
from cafenet.runs.results import count


def comparison_html(comparison: Comparison) -> str:
    """Return the page.

    Args:
        comparison: The runs.

    Returns:
        The HTML.
    """
    said = "".join(f"<p>{text(line)}.</p>" for line in sentences(comparison))
    missing = [f"{run.name}: {line}" for run in comparison.runs for line in (*run.problems, *run.missing())]
    names = " · ".join(run.name for run in comparison.runs)
    return document(
        "CafeNet: runs compared",
        [
            masthead("Comparison", "", names),
            f'<div class="verdict"><p class="headline">{len(comparison.runs)} runs compared</p>{said}</div>',
            *(f'<p class="missing">Not there yet: {text(line)}.</p>' for line in missing),
            _results(comparison),
            _settings(comparison),
            *(figure_part(name, figure) for name, figure in comparison_figures(comparison).items()),
        ],
    )


def _results(comparison: Comparison) -> str:
    """Return the models of all runs; if few keys differ, each has a column of its own."""
    keys = shown_keys(comparison)
    head = ["model", "accuracy", *keys, "FLOPs", "time of the run"]
    body = [(_row_class(comparison, line), _cells(line, keys)) for line in comparison.lines]
    note = "Accuracy on the test data. A baseline that is the same in several runs is shown once."
    return f'<section><h2>Models</h2>{cards(head, body)}<p class="note">{note}</p></section>' if body else ""


def _cells(line: Line, keys: Sequence[str]) -> list[object]:
    """Return the cells of one model."""
    row, settings = line.row, [line.settings[key] for key in keys]
    time = duration(total_seconds(line.run))
    return [line.label, row.accuracy, *settings, count(row.flops), time]


def _row_class(comparison: Comparison, line: Line) -> str:
    """Return the CSS class of a model's row."""
    return _kind_of_line(comparison, line) + (" ours" if is_own(line.row.method) else "")


def _settings(comparison: Comparison) -> str:
    """Return the keys whose values differ, one row each, if there are too many for columns."""
    if len(shown_keys(comparison)) == len(comparison.keys):
        return ""
    body = [("", [key, *values]) for key, values in comparison.values().items()]
    head = ["key", *(run.name for run in comparison.runs)]
    return f"<section><h2>What differs</h2>{cards(head, body, 'plain')}</section>"


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
    places = {line.settings[key] for line in comparison.own}
    across = scale_of(places)
    across = Scale(across.low, across.high, tuple(sorted(places)) if len(places) < 8 else across.ticks)
    caption = "Means over the seeds, with one standard deviation to each side. The time is that of the whole run."
    charts = (_swept_accuracy(comparison, key, across), _swept_time(comparison, key, across))
    return Figure(f"Accuracy and time against {key}", caption, charts)


def _swept_accuracy(comparison: Comparison, key: str, across: Scale) -> Chart:
    """Draw accuracy against a setting, with a line for each method and budget."""
    middles = {id(line): spread(line.row) for line in comparison.own}
    ends = [middle + side * error for middle, error in middles.values() for side in (-1, 1)]
    texts = {place: f"{place:g}" for place in across.ticks}
    chart = Chart(across, scale_of(ends), key, "accuracy on the test data, %", across_texts=texts)
    kinds = {(line.row.method, line.row.budget): None for line in comparison.own}
    for number, kind in enumerate(kinds):
        lines = [line for line in comparison.own if (line.row.method, line.row.budget) == kind]
        lines.sort(key=lambda line: line.settings[key])
        places = [(line.settings[key], middles[id(line)][0]) for line in lines]
        chart.line(places, ORIGINAL, series=number, style="thin")
        for line in lines:
            _draw(chart, comparison, line, line.settings[key], number)
        chart.label(*places[-1], " ".join(kind), ORIGINAL, series=number)
    return chart


def _swept_time(comparison: Comparison, key: str, across: Scale) -> Chart:
    """Draw the time of the runs against a setting."""
    found = {line.run.name: (line.settings[key], line) for line in comparison.own}
    minutes = {name: total_seconds(line.run) / 60 for name, (_, line) in found.items()}
    texts = {place: f"{place:g}" for place in across.ticks}
    up = scale_of(minutes.values(), from_zero=True)
    chart = Chart(across, up, key, "time of the run, minutes", across_texts=texts)
    for name, (place, line) in found.items():
        tip = f"{name}: {duration(60 * minutes[name])}"
        chart.point(place, minutes[name], _kind_of_line(comparison, line), "dot", tip=tip)
    return chart


def accuracy_against_flops(comparison: Comparison) -> Figure | None:
    """Draw the final models of all runs.

    Args:
        comparison: The runs.

    Returns:
        The figure, or None without data.
    """
    if not comparison.lines:
        return None
    ends = [middle + side * error for line in comparison.lines for middle, error in [spread(line.row)]
            for side in (-1, 1)]  # fmt: skip
    unit, title = flops_unit([line.row.flops for line in comparison.lines])
    across = scale_of([line.row.flops / unit for line in comparison.lines], from_zero=True)
    chart = Chart(across, scale_of(ends), title, "accuracy on the test data, %")
    names: dict[str, int] = {}
    shifts = side_by_side([across.share(line.row.flops / unit) for line in comparison.lines])
    for line, shift in zip(comparison.lines, shifts, strict=True):
        name = line.run.name if is_own(line.row.method) else line.row.method
        kind, series = _kind_of_line(comparison, line), names.setdefault(name, len(names))
        if series == len(chart.keys):
            chart.keys.append(Key(name, kind, series, _shape(line)))
        _draw(chart, comparison, line, line.row.flops / unit, series, shift)
    caption = (
        "The final models of all runs: means over the seeds, with one standard deviation to each side. Models of "
        "nearly equal cost are set apart a little."
    )
    return Figure("Accuracy against cost", caption, (chart,))


def _draw(chart: Chart, comparison: Comparison, line: Line, across: float, series: int, shift: float = 0) -> None:
    """Draw one model with what its seeds differ by."""
    (middle, error), kind = spread(line.row), _kind_of_line(comparison, line)
    if error:
        chart.error(across, middle - error, middle + error, kind, series=series, shift=shift)
    tip = f"{line.label}: {line.row.accuracy} at {line.row.flops:,} FLOPs"
    chart.point(across, middle, kind, _shape(line), tip=tip, series=series, shift=shift)


def score_histograms(comparison: Comparison) -> Figure | None:
    """Draw the scores of the runs' own searches over each other (paper, a12).

    Args:
        comparison: The runs.

    Returns:
        The figure, or None without data.
    """
    found = {name: (kind, study) for name, kind, study in _own_studies(comparison) if study.trials}
    kinds = {name: kind for name, (kind, _) in found.items()}
    trials = {name: study.trials for name, (_, study) in found.items()}
    return histogram(trials, kinds, score_title(comparison.runs[0]))


def training_curves(comparison: Comparison) -> Figure | None:
    """Draw the losses of the runs' own supernets.

    Args:
        comparison: The runs.

    Returns:
        The figure, or None without data.
    """
    curves = [(name, kind, study.log) for name, kind, study in _own_studies(comparison) if len(study.log) > 1]
    if not curves:
        return None
    caption = "Smoothed loss of the sampled widths, without the steep first tenth."
    chart = loss_chart(curves, "training loss of the sampled widths")
    return Figure("Supernet training", caption, (chart,), is_detail=True)


def _own_studies(comparison: Comparison) -> list[tuple[str, str, StudyRecord]]:
    """Return name, kind and study of every run's supernets except those of the fixed sharing."""
    found = []
    for number, run in enumerate(comparison.runs):
        own = [study for study in run.studies if not study.name.startswith("supernet-fixed")]
        found += [(_name_of(run, study, len(own)), kind_of_run(number), study) for study in own]
    return found


def _name_of(run: RunRecord, study: StudyRecord, num_studies: int) -> str:
    """Return the name of a run, with that of its supernet if it has several."""
    return run.name if num_studies == 1 else f"{run.name} {in_words(study.name)}"


def _kind_of_line(comparison: Comparison, line: Line) -> str:
    """Return the colour of a model: that of its run, or that of its baseline."""
    if is_own(line.row.method):
        return kind_of_run(comparison.runs.index(line.run))
    return UNIFORM if line.row.method == "Uniform" else ORIGINAL


def _shape(line: Line) -> str:
    """Return the mark of a model."""
    if is_own(line.row.method):
        return "dot"
    return shape_of({"Uniform": UNIFORM, "Original": ORIGINAL}.get(line.row.method, ""))
