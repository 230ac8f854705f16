"""The figures of a run: each function turns the records of a run into a matplotlib figure, or None without data."""

import math
import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, cast

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cafenet.report.figure_style import OWN, PALE, PICK, colour, duration, label_of, legend, mark, single, smoothed
from cafenet.report.run_records import RunRecord, TrialRecord


def all_figures(run: RunRecord) -> dict[str, Figure]:
    """Draw every figure for which the run has data.

    Args:
        run: The records of the run.

    Returns:
        The figures by file name.
    """
    makers: dict[str, Callable[[RunRecord], Figure | None]] = {
        "widths": widths_kept,
        "accuracy-flops": accuracy_against_flops,
        "progress": search_progress,
        "histogram": score_histogram,
        "training": training_curves,
        "bins": bins_of_groups,
        "time": time_spent,
        "attributes": attribute_differences,
    }
    made = {name: make(run) for name, make in makers.items()}
    return {name: figure for name, figure in made.items() if figure is not None}


def widths_kept(run: RunRecord) -> Figure | None:
    """Draw the width kept per group over the network (paper, a10), with one panel for each model found.

    Args:
        run: The records of the run.

    Returns:
        The figure, or None without data.
    """
    entries = [entry for entry in run.entries if entry["channels"] and entry["method"].startswith("CafeNet")]
    if not entries or run.space is None:
        return None
    groups = run.space["groups"]
    height = 0.8 + 0.19 * len(groups)
    figure = Figure(figsize=(7, height * len(entries)), layout="constrained")
    panels = figure.subplots(len(entries), 1, squeeze=False)[:, 0]
    for axes, entry in zip(panels, entries, strict=True):
        full = [group["channels"] for group in groups]
        kept = [len(entry["channels"].get(group["name"], range(group["channels"]))) for group in groups]
        shares = [100 * part / whole for part, whole in zip(kept, full, strict=True)]
        places = range(len(groups))
        axes.barh(places, [100] * len(groups), color=PALE, alpha=0.25, height=0.75)
        bars = axes.barh(places, shares, color=OWN, height=0.75)
        for bar, group, part in zip(bars, groups, kept, strict=True):
            mark(bar, tip=f"{_layers(group)}: {part} of {group['channels']} channels")
            axes.text(101, bar.get_y() + bar.get_height() / 2, f"{part}/{group['channels']}", va="center", fontsize=6)
        axes.set_yticks(places, [group["name"] for group in groups], fontsize=6)
        axes.invert_yaxis()
        axes.set(xlim=(0, 112), xlabel="width kept, %", title=f"{entry['method']} at {entry['budget']}")
    return figure


def accuracy_against_flops(run: RunRecord) -> Figure | None:
    """Draw all scored widths, their Pareto front and the picks; pointing at a dot shows its widths (see `points`).

    Args:
        run: The records of the run.

    Returns:
        The figure, or None without data.
    """
    studies = scored_studies(run)
    if not studies:
        return None
    figure, axes = single()
    for number, (name, trials) in enumerate(studies.items()):
        (dots,) = axes.plot(
            *zip(*((trial.costs["flops"] / 1e6, 100 * trial.value) for trial in trials), strict=True),
            "o",
            markersize=3,
            alpha=0.5,
            color=colour(number),
            markeredgewidth=0,
            label=f"{name} ({len(trials):,} widths)",
        )
        mark(dots, series=number, points=points_name(number))
    front = pareto_front(studies[_searched_last(run, list(studies))])
    (line,) = axes.plot(
        [trial.costs["flops"] / 1e6 for trial in front],
        [100 * trial.value for trial in front],
        color=PICK,
        linewidth=1,
        label="Pareto front",
    )
    mark(line, series=len(studies))
    num_picks = _mark_picks(axes, run, len(studies) + 1)
    axes.set(xlabel="FLOPs, millions (one multiply-add is one)", ylabel=score_label(run))
    legend(axes, range(len(studies) + 1 + num_picks))
    return figure


def _searched_last(run: RunRecord, names: list[str]) -> str:
    """Return the study that the first pick comes from; before there is one, the one that was scored last."""
    own = [entry.get("supernet") for entry in run.entries if entry["method"].startswith("CafeNet")]
    return next((name for name in own if name in names), names[-1])


def points(run: RunRecord) -> dict[str, Any]:
    """Return the data behind the dots of `accuracy_against_flops`: score, FLOPs and widths of each dot.

    Args:
        run: The records of the run.

    Returns:
        One block of data per study, by the name of the block.
    """
    return {
        points_name(number): {
            "groups": list(trials[0].widths),
            "points": [
                [round(100 * trial.value, 4), int(trial.costs["flops"]), list(trial.widths.values())]
                for trial in trials
            ],
        }
        for number, trials in enumerate(scored_studies(run).values())
    }


def points_name(number: int) -> str:
    """Return the name of the block of data behind the dots of a study.

    Args:
        number: Number of the study.

    Returns:
        The name.
    """
    return f"points-{number}"


def scored_studies(run: RunRecord) -> dict[str, list[TrialRecord]]:
    """Return the widths of each study whose scores are complete, once each.

    Args:
        run: The records of the run.

    Returns:
        The trials by the name of the study.
    """
    found = {study.name: [trial for trial in finished(study.trials) if trial.is_complete] for study in run.studies}
    return {name: trials for name, trials in found.items() if trials}


def search_progress(run: RunRecord) -> Figure | None:
    """Draw every score in the order in which it was made, and the best so far, for each search.

    Args:
        run: The records of the run.

    Returns:
        The figure, or None without data.
    """
    searches: dict[str, list[TrialRecord]] = {}
    for study in run.studies:
        for trial in study.trials:
            if not trial.is_exact:
                searches.setdefault(f"{study.name}: {_short(trial.search)}", []).append(trial)
    if not searches:
        return None
    figure, axes = single()
    for number, (name, trials) in enumerate(searches.items()):
        values = [100 * trial.value for trial in trials]
        complete = [100 * trial.value if trial.is_complete else -math.inf for trial in trials]
        best = list(accumulate(complete, max))
        (dots,) = axes.plot(values, ".", markersize=2, alpha=0.4, color=colour(number))
        shown = [math.nan if math.isinf(each) else each for each in best]
        (line,) = axes.plot(shown, color=colour(number), label=name)
        for artist in (dots, line):
            mark(artist, series=number)
    axes.set(xlabel="widths scored", ylabel=score_label(run))
    legend(axes, range(len(searches)))
    return figure


def score_histogram(run: RunRecord) -> Figure | None:
    """Draw the distribution of the scores of all widths (paper, a12), for each supernet.

    Args:
        run: The records of the run.

    Returns:
        The figure, or None without data.
    """
    return histogram({study.name: study.trials for study in run.studies if study.trials}, score_label(run))


def histogram(studies: dict[str, list[TrialRecord]], label: str) -> Figure | None:
    """Draw the scores of several studies over each other.

    Args:
        studies: The trials by the name of the study.
        label: Label of the axis of scores.

    Returns:
        The figure, or None without data.
    """
    if not studies:
        return None
    figure, axes = single()
    values = {name: [100 * trial.value for trial in finished(trials)] for name, trials in studies.items()}
    low, high = min(map(min, values.values())), max(map(max, values.values()))
    num_bins = min(30, max(5, max(map(len, values.values())) // 8))
    for number, (name, scores) in enumerate(values.items()):
        _, _, shapes = axes.hist(
            scores,
            bins=num_bins,
            range=(low, high) if high > low else None,
            histtype="stepfilled",
            alpha=0.5,
            color=colour(number),
            label=label_of(name),
        )
        for shape in cast("list[Artist]", shapes):
            mark(shape, series=number)
    axes.set(xlabel=label, ylabel="widths")
    legend(axes, range(len(studies)))
    return figure


def training_curves(run: RunRecord) -> Figure | None:
    """Draw the smoothed loss of every supernet over its training.

    Args:
        run: The records of the run.

    Returns:
        The figure, or None without data.
    """
    studies = [study for study in run.studies if len(study.log) > 1]
    if not studies:
        return None
    figure, axes = single()
    for number, study in enumerate(studies):
        epochs, losses = [line["epoch"] for line in study.log], [line["loss"] for line in study.log]
        lines = axes.plot(epochs, losses, alpha=0.2, linewidth=0.8, color=colour(number))
        lines += axes.plot(epochs, smoothed(losses), color=colour(number), label=study.name)
        for line in lines:
            mark(line, series=number)
    axes.set(xlabel="epochs", ylabel="training loss of the sampled widths")
    legend(axes, range(len(studies)))
    return figure


def bins_of_groups(run: RunRecord) -> Figure | None:
    """Draw the bin size and the number of bins per group (paper, a11).

    Args:
        run: The records of the run.

    Returns:
        The figure, or None without data.
    """
    if run.space is None:
        return None
    groups = run.space["groups"]
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    for axes, key, title in zip(
        figure.subplots(1, 2), ("bin_size", "num_bins"), ("channels in a bin", "bins"), strict=True
    ):
        bars = axes.bar(range(len(groups)), [group[key] for group in groups], color=OWN)
        for bar, group in zip(bars, groups, strict=True):
            mark(bar, tip=f"{_layers(group)}: {group['num_bins']} bins of {group['bin_size']}")
        axes.set(xlabel="width group, from input to output", ylabel=title)
    return figure


def time_spent(run: RunRecord) -> Figure | None:
    """Draw the time of each step of the run.

    Args:
        run: The records of the run.

    Returns:
        The figure, or None without data.
    """
    seconds = run.manifest.get("seconds") or {}
    if not seconds:
        return None
    figure = Figure(figsize=(7, 0.9 + 0.3 * len(seconds)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(list(seconds), list(seconds.values()), color=OWN)
    axes.bar_label(bars, [duration(each) for each in seconds.values()], padding=3, fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set(xlabel="seconds")
    return figure


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
        if row["method"].startswith("CafeNet")
        for other in rows
        if other["method"] == "Uniform" and other["budget"] == row["budget"]
    ]
    if not pairs:
        return None
    names = (run.space or {}).get("attributes") or [str(number) for number in range(len(pairs[0][0]["per_attribute"]))]
    figure = Figure(figsize=(7, 0.8 + 0.16 * len(names)), layout="constrained")
    axes = figure.subplots()
    for number, (row, other) in enumerate(pairs):
        points = [100 * (own - base) for own, base in zip(row["per_attribute"], other["per_attribute"], strict=True)]
        places = [place + 0.4 * number / len(pairs) for place in range(len(names))]
        label = f"{row['method']} - Uniform at {row['budget']}"
        bars = axes.barh(places, points, height=0.8 / len(pairs), color=colour(number), label=label)
        for bar, name, point in zip(bars, names, points, strict=True):
            mark(bar, series=number, tip=f"{name}: {point:+.2f} points")
    axes.set_yticks(range(len(names)), names, fontsize=6)
    axes.invert_yaxis()
    axes.set(xlabel="points of accuracy")
    legend(axes, range(len(pairs)))
    return figure


def pareto_front(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the trials that no other beats at equal or fewer FLOPs, the cheapest first.

    Args:
        trials: The trials.

    Returns:
        The trials of the front.
    """
    front: list[TrialRecord] = []
    for trial in sorted(trials, key=lambda each: (each.costs["flops"], -each.value)):
        if not front or trial.value > front[-1].value:
            front.append(trial)
    return front


def finished(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return one record per width: the exact score if there is one.

    Args:
        trials: The trials.

    Returns:
        The records.
    """
    best: dict[tuple[tuple[str, int], ...], TrialRecord] = {}
    for trial in trials:
        key = tuple(trial.widths.items())
        if key not in best or (trial.is_exact, trial.is_complete) >= (best[key].is_exact, best[key].is_complete):
            best[key] = trial
    return list(best.values())


def score_label(run: RunRecord) -> str:
    """Return the label of an axis of scores.

    Args:
        run: The records of the run.

    Returns:
        The label.
    """
    metric = run.recipe.get("metric", "accuracy")
    return "validation accuracy in the supernet, %" if metric == "accuracy" else f"100 x {metric} in the supernet"


def _mark_picks(axes: Axes, run: RunRecord, series: int) -> int:
    """Draw a star for each model found; return their number."""
    rows = {(row["method"], row["budget"]): row for row in (run.results or {}).get("rows", [])}
    num_picks = 0
    for entry in run.entries:
        row = rows.get((entry["method"], entry["budget"]))
        if row is None or entry["search_score"] is None or not entry["method"].startswith("CafeNet"):
            continue
        name = f"{entry['method']} {entry['budget']}"
        (dot,) = axes.plot(row["flops"] / 1e6, 100 * entry["search_score"], "*", markersize=11, color=PICK, label=name)
        tip = f"{name}: {100 * entry['search_score']:.2f}% at {row['flops']:,} FLOPs"
        mark(dot, series=series + num_picks, tip=tip)
        num_picks += 1
    return num_picks


def _layers(group: dict[str, Any]) -> str:
    """Return a group's name with the layers that are coupled in it."""
    layers = group.get("layers") or []
    return group["name"] if len(layers) < 2 else f"{group['name']} ({', '.join(layers)})"


def _short(search: str) -> str:
    """Shorten `Evolution(population=...) 50% seed 0 band ...` to `Evolution 50%`; the repr of a user's
    algorithm stays."""
    algorithm_and_budget = search.partition(" seed ")[0]
    return label_of(re.sub(r"^(\w+)\(.*\) ", r"\1 ", algorithm_and_budget))
