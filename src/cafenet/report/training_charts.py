"""Losses of trainings: those of the finished models, and those of the supernets."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from cafenet.report.kinds import kind_of
from cafenet.report.plot import Chart, Figure, Key
from cafenet.report.run_records import RunRecord
from cafenet.report.scales import scale_of
from cafenet.report.search_charts import in_words, kind_of_study

Curve = tuple[str, str, Sequence[dict[str, Any]]]
"""Name, kind and log of a training."""
_MOST_POINTS = 400


def training_figures(run: RunRecord) -> dict[str, Figure]:
    """Draw the trainings for which there are logs.

    Args:
        run: The records of the run.

    Returns:
        The figures by name.
    """
    supernets = [
        (in_words(study.name), kind_of_study(run, study), study.log) for study in run.studies if len(study.log) > 1
    ]
    made = {}
    if run.trainings:
        made["final-training"] = Figure(
            "Training of the finished models",
            "Smoothed loss of one seed, without the steep first tenth. A lower one is no proof of a better model.",
            _final_charts(run),
        )
    if supernets:
        made["training"] = Figure(
            "Supernet training",
            "The loss of the sampled widths is noisy; the line is smoothed, without the steep first tenth. Epochs that "
            "trained the full network first are not shown.",
            (loss_chart(supernets, "training loss of the sampled widths"),),
            is_detail=True,
        )
    return made


def _final_charts(run: RunRecord) -> tuple[Chart, ...]:
    """Draw the finished models, one chart for each budget with the original in it: in one chart, the models that a
    method has for several budgets would look alike. All charts have one legend."""
    budgets = list(dict.fromkeys(each.budget for each in run.trainings if each.budget)) or [""]
    methods = list(dict.fromkeys(each.method for each in run.trainings))
    charts, shown = [], set()
    for budget in budgets:
        own = [each for each in run.trainings if each.budget in ("", budget)]
        curves = [(each.method, kind_of(each.method, methods), each.log) for each in own]
        chart = loss_chart(curves, f"training loss, {budget}" if budget else "training loss", methods)
        chart.keys[:] = [key for key in chart.keys if key.label not in shown]
        shown |= {key.label for key in chart.keys}
        charts.append(chart)
    return tuple(charts)


def loss_chart(curves: Sequence[Curve], title: str, order: Sequence[str] = ()) -> Chart:
    """Draw smoothed losses over epochs.

    Args:
        curves: Name, kind and log of each training.
        title: Title of the vertical axis.
        order: Names of all curves of a figure of several charts, which share a legend.

    Returns:
        The chart.
    """
    lines = [(name, kind, *_smooth(log)) for name, kind, log in curves]
    across = scale_of([epoch for *_, epochs, _ in lines for epoch in epochs], from_zero=True, margin=0.0)
    chart = Chart(across, scale_of([loss for *_, losses in lines for loss in losses]), "epochs", title)
    for place, (name, kind, epochs, losses) in enumerate(lines):
        number = order.index(name) if name in order else place
        chart.line(list(zip(epochs, losses, strict=True)), kind, series=number)
        chart.keys.append(Key(name, kind, number, "line"))
    return chart


def _smooth(log: Sequence[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Return epochs and smoothed losses without the steep first tenth, no more of them than a chart can show."""
    first, step = len(log) // 10, -(-len(log) // _MOST_POINTS)
    losses = smoothed([line["loss"] for line in log])
    return [line["epoch"] for line in log][first::step], losses[first::step]


def smoothed(values: Sequence[float]) -> list[float]:
    """Return a running mean over about a tenth of the values.

    Args:
        values: The values.

    Returns:
        As many smoothed values.
    """
    weight = max(0.0, min(0.95, 1 - 10 / len(values))) if values else 0.0
    return list(accumulate(values, lambda mean, value: weight * mean + (1 - weight) * value))
