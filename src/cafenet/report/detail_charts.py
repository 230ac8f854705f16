"""Figures that few readers need: the bins of the groups, the time of the steps, single attributes."""

from cafenet.common.job_progress import duration
from cafenet.report.bars import Bar, Bars
from cafenet.report.kinds import ORIGINAL, OWN, is_own
from cafenet.report.plot import Figure
from cafenet.report.run_records import RunRecord
from cafenet.report.width_charts import coupled


def detail_figures(run: RunRecord) -> dict[str, Figure]:
    """Draw the figures for which there is data.

    Args:
        run: The records of the run.

    Returns:
        The figures by name.
    """
    made = {"attributes": attribute_differences(run), "bins": bins_of_groups(run), "time": time_spent(run)}
    return {name: figure for name, figure in made.items() if figure is not None}


def bins_of_groups(run: RunRecord) -> Figure | None:
    """Draw the bin size and the number of bins per group (paper, a11).

    Args:
        run: The records of the run.

    Returns:
        The figure, or None without data.
    """
    groups = [] if run.space is None else run.space["groups"]
    bars = [
        Bar(
            group["name"],
            group["num_bins"],
            f"{group['num_bins']} bins of {group['bin_size']}",
            OWN,
            f"{coupled(group)}: {group['num_bins']} bins of {group['bin_size']} channels",
        )
        for group in groups
    ]
    caption = "Channels are added and dropped in bins; cheaper channels have larger bins. Bars show the number of bins."
    return Figure("Bins", caption, (Bars(bars),), is_detail=True) if bars else None


def time_spent(run: RunRecord) -> Figure | None:
    """Draw the time of each step of the run.

    Args:
        run: The records of the run.

    Returns:
        The figure, or None without data.
    """
    seconds = run.manifest.get("seconds") or {}
    bars = [Bar(step, each, duration(each), ORIGINAL) for step, each in seconds.items()]
    caption = "Summed over all starts of this run."
    return Figure("Time spent", caption, (Bars(bars),), is_detail=True) if bars else None


def attribute_differences(run: RunRecord) -> Figure | None:
    """Draw the accuracy of every attribute minus that of Uniform, for multi-label data (paper, a9).

    Args:
        run: The records of the run.

    Returns:
        The figure, or None without data.
    """
    rows = [row for row in (run.results or {}).get("rows", []) if row["per_attribute"]]
    pairs = [
        (row, other)
        for row in rows
        if is_own(row["method"])
        for other in rows
        if other["method"] == "Uniform" and other["budget"] == row["budget"]
    ]
    if not pairs:
        return None
    names = (run.space or {}).get("attributes") or [str(number) for number in range(len(pairs[0][0]["per_attribute"]))]
    charts = []
    for row, other in pairs:
        points = [100 * (own - base) for own, base in zip(row["per_attribute"], other["per_attribute"], strict=True)]
        charts.append(
            Bars([Bar(name, point, f"{point:+.2f} points", OWN) for name, point in zip(names, points, strict=True)])
        )
    titles = ", ".join(f"{row['method']} - Uniform at {row['budget']}" for row, _ in pairs)
    return Figure("Attributes against Uniform", f"Difference of test accuracy in points: {titles}.", tuple(charts))
