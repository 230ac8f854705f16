"""Accuracy against cost: the finished models, with what their seeds differ by."""

from statistics import mean, stdev

from cafenet.report.kinds import shape_of
from cafenet.report.models import Model, Models
from cafenet.report.plot import Chart, Figure
from cafenet.report.scales import Scale, scale_of

_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def cost_figure(models: Models) -> Figure:
    """Draw the score of every finished model against its FLOPs.

    Args:
        models: The models.

    Returns:
        The figure.
    """
    whole = models.original.flops if models.original else max(each.flops for each in models.models)
    scores = [models.unit(score) for each in models.models for score in each.scores]
    chart = Chart(
        Scale(0.0, 1.08, _SHARES),
        scale_of(scores, margin=0.25),
        "FLOPs, share of the original" if models.original else "FLOPs, share of the largest model",
        models.axis,
        across_texts={share: f"{share:.0%}" for share in _SHARES},
    )
    for each in models.models:
        _draw(chart, models, each, each.flops / whole)
    return Figure("Accuracy against cost", _caption(models), (chart,))


def _draw(chart: Chart, models: Models, each: Model, share: float) -> None:
    """Draw one model: its mean, its seeds' spread and its name."""
    values = [models.unit(score) for score in each.scores]
    if not values:
        return
    middle = mean(values)
    if len(values) > 1:
        chart.error(share, middle - stdev(values), middle + stdev(values), each.kind)
    tip = f"{each.name}: {models.spread(each.scores)} at {each.flops:,} FLOPs ({share:.0%})"
    chart.point(share, middle, each.kind, shape_of(each.kind), tip=tip)
    chart.label(share, middle, each.name, each.kind)


def _caption(models: Models) -> str:
    """Return what the chart shows, and what it does not say."""
    num_seeds = max(len(each.scores) for each in models.models)
    examples = "" if models.num_examples is None else f" {models.num_examples:,} examples of the"
    text = f"Finished models on{examples} {models.data}; up and to the left is better. "
    if num_seeds > 1:
        return text + f"Dots are means of {num_seeds} trainings, bars one standard deviation to each side."
    return text + "One training each, so small differences may be chance."
