"""Accuracy against cost: the finished models, with what their seeds differ by."""

from statistics import mean, stdev

from cafenet.report.kinds import shape_of
from cafenet.report.models import Model, Models
from cafenet.report.plot import Chart, Figure
from cafenet.report.scales import Scale, scale_of, side_by_side

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
    shares = [each.flops / whole for each in models.models]
    shifts = side_by_side(shares)
    for each, share, shift in zip(models.models, shares, shifts, strict=True):
        reach = max(abs(other) for other, place in zip(shifts, shares, strict=True) if abs(place - share) <= 0.04)
        _draw(chart, models, each, share, (shift, reach))
    return Figure("Accuracy against cost", _caption(models), (chart,))


def _draw(chart: Chart, models: Models, each: Model, share: float, shifts: tuple[float, float]) -> None:
    """Draw one model: its mean, its seeds' spread and its name, moved by shifts of the mark and of the name."""
    values, (shift, reach) = [models.unit(score) for score in each.scores], shifts
    if not values:
        return
    middle = mean(values)
    if len(values) > 1:
        chart.error(share, middle - stdev(values), middle + stdev(values), each.kind, shift=shift)
    tip = f"{each.name}: {models.spread(each.scores)} at {each.flops:,} FLOPs ({share:.0%})"
    chart.point(share, middle, each.kind, shape_of(each.kind), tip=tip, shift=shift)
    chart.label(share, middle, each.name, each.kind, shift=reach)  # beside all marks of this cost


def _caption(models: Models) -> str:
    """Return what the chart shows, and what it does not say."""
    num_seeds = max(len(each.scores) for each in models.models)
    examples = "" if models.num_examples is None else f" {models.num_examples:,} examples of the"
    text = f"Finished models on{examples} {models.data}; up and to the left is better. "
    if num_seeds > 1:
        text += f"Dots are means of {num_seeds} trainings, bars one standard deviation to each side. "
        return text + "Models of nearly equal cost are set apart a little."
    return text + "One training each, so small differences may be chance."
