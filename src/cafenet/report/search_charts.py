"""Figures of the search: scores that a supernet gives to widths. None of them is the accuracy of a finished model."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from cafenet.report.kinds import OWN, is_own, kind_of
from cafenet.report.models import rows_of
from cafenet.report.plot import Chart, Figure, Key
from cafenet.report.run_records import RunRecord, StudyRecord
from cafenet.report.scales import Scale, flops_unit, scale_of
from cafenet.report.trials import TrialRecord

FIXED = "Fixed sharing"
_FRONT, _STAR = "front", "star-of"


def search_figures(run: RunRecord) -> dict[str, Figure]:
    """Draw every figure of the search for which there is data.

    Args:
        run: The records of the run.

    Returns:
        The figures by name.
    """
    made = {
        "accuracy-flops": scores_against_flops(run),
        "progress": search_progress(run),
        "histogram": histogram(
            {in_words(study.name): study.trials for study in run.studies if study.trials},
            {in_words(study.name): kind_of_study(run, study) for study in run.studies},
            score_title(run),
        ),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def kind_of_study(run: RunRecord, study: StudyRecord) -> str:
    """Return the kind of a supernet: that of the method which searches it, the same as in all other figures.

    Args:
        run: The records of the run.
        study: The study of the supernet.

    Returns:
        The kind.
    """
    methods = [each.method for each in rows_of(run)] or [each["method"] for each in run.entries]
    return kind_of(FIXED, methods) if study.name.startswith("supernet-fixed") else OWN


def scores_against_flops(run: RunRecord) -> Figure | None:
    """Draw all scored widths, their front and the picks; pointing at a dot shows its widths (see `points`).

    Args:
        run: The records of the run.

    Returns:
        The figure, or None without data.
    """
    studies = scored_studies(run)
    if not studies:
        return None
    of_name = {study.name: study for study in run.studies}
    unit, title = flops_unit([trial.costs["flops"] for trials in studies.values() for trial in trials])
    found = [(trial.costs["flops"] / unit, 100 * trial.value) for trials in studies.values() for trial in trials]
    picks = [(flops / unit, up, name) for flops, up, name in _picks(run)]
    last, picked = searched_last(run, list(studies)), _searched(run)
    found += [(across, up) for across, up, _ in picks]
    chart = Chart(
        scale_of([across for across, _ in found]),
        scale_of([up for _, up in found]),
        title,
        score_title(run),
        height=280,
    )
    for number, (name, trials) in enumerate(studies.items()):
        is_last = name == last or name in picked or "/stage-" not in name
        kind = kind_of_study(run, of_name[name]) + ("" if is_last else " earlier")
        places = [(trial.costs["flops"] / unit, 100 * trial.value) for trial in trials]
        chart.dots(places, kind, points_name(number), series=number)
        shape = "dot" if kind == OWN else "ring"
        chart.keys.append(Key(f"{in_words(name)}: {_widths(len(trials))}", kind, number, shape))
    front = pareto_front(studies[last])
    places = [(trial.costs["flops"] / unit, 100 * trial.value) for trial in front]
    chart.line(places, _FRONT, series=len(studies), style="thin")
    of = f" of {in_words(last)}" if len(studies) > 1 else ""
    chart.keys.append(Key(f"front{of}: best score at each cost", _FRONT, len(studies), "line"))
    for across, up, name in picks:
        tip = f"{name}: the widths that were picked, {up:.2f} in the supernet at {across * unit:,.0f} FLOPs"
        chart.point(across, up, _STAR, "star", tip=tip, series=len(studies) + 1)
        chart.label(across, up, name, _STAR, series=len(studies) + 1)
    if picks:
        chart.keys.append(Key("star: the widths that were picked", _STAR, len(studies) + 1, "star"))
    return Figure("What the search saw", _CAPTION + (_OFF_THE_FRONT if picks else ""), (chart,))


_CAPTION = (
    "Each dot is one choice of widths, scored inside the supernet before any training of its own. These scores rank "
    "widths; finished models reach other accuracies. "
)
_OFF_THE_FRONT = (
    "A star may lie off the front: single scores are noisy and the highest of many is partly luck, so a search by "
    "trend takes the best width of a fit to all scores, and scores it once more on all examples."
)


def points(run: RunRecord) -> dict[str, Any]:
    """Return the data behind the dots of `scores_against_flops`: score, FLOPs and widths of each dot.

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
    """Return the widths of each study whose scores are complete, once each, the cheapest first.

    Args:
        run: The records of the run.

    Returns:
        The trials by the name of the study.
    """
    found = {study.name: [trial for trial in finished(study.trials) if trial.is_complete] for study in run.studies}
    return {name: sorted(trials, key=lambda each: each.costs["flops"]) for name, trials in found.items() if trials}


def search_progress(run: RunRecord) -> Figure | None:
    """Draw every score in the order in which it was made, and the best so far, for each search.

    Args:
        run: The records of the run.

    Returns:
        The figure, or None without data.
    """
    searches: dict[str, tuple[StudyRecord, list[TrialRecord]]] = {}
    for study in run.studies:
        for trial in study.trials:
            if not trial.is_exact:
                searches.setdefault(f"{in_words(study.name)}: {_short(trial.search)}", (study, []))[1].append(trial)
    if not searches:
        return None
    values = {name: [100 * trial.value for trial in trials] for name, (_, trials) in searches.items()}
    most = max(map(len, values.values()))
    up = scale_of([value for each in values.values() for value in each])
    chart = Chart(scale_of([0, most]), up, "widths scored", score_title(run))
    for number, (name, (study, trials)) in enumerate(searches.items()):
        kind = kind_of_study(run, study)
        chart.cloud(list(enumerate(values[name], start=1)), kind, series=number)
        best = accumulate((100 * trial.value if trial.is_complete else -math.inf for trial in trials), max)
        rising = [(place, value) for place, value in enumerate(best, start=1) if not math.isinf(value)]
        chart.line(rising, kind, series=number)
        chart.keys.append(Key(name, kind, number, "line"))
    caption = (
        "Dots are scores and lines the best so far; a search by trend takes the best width of a fit instead. Widths "
        "that were dropped early show an estimate."
    )
    return Figure("Search progress", caption, (chart,), is_detail=True)


def histogram(studies: Mapping[str, Sequence[TrialRecord]], kinds: Mapping[str, str], title: str) -> Figure | None:
    """Draw the scores of several studies over each other.

    Args:
        studies: The trials by the name of the study.
        kinds: The kind of each study.
        title: Title of the axis of scores.

    Returns:
        The figure, or None without data.
    """
    if not studies:
        return None
    values = {name: [100 * trial.value for trial in finished(trials)] for name, trials in studies.items()}
    low, high = min(map(min, values.values())), max(map(max, values.values()))
    num_bins = min(30, max(5, max(map(len, values.values())) // 8))
    size = (high - low) / num_bins or 1.0
    counts = {
        name: Counter(min(num_bins - 1, int((value - low) / size)) for value in each) for name, each in values.items()
    }
    up = scale_of([count for each in counts.values() for count in each.values()], from_zero=True)
    ticks = tuple(tick for tick in up.ticks if tick == round(tick))
    chart = Chart(scale_of([low, low + num_bins * size]), Scale(up.low, up.high, ticks), title, "number of widths")
    for number, (name, each) in enumerate(counts.items()):
        for place, count in sorted(each.items()):
            start = low + size * place
            tip = f"{name}: {_widths(count)} from {start:.2f} to {start + size:.2f}"
            chart.column(start, start + size, count, kinds[name], tip=tip, series=number)
        chart.keys.append(Key(name, kinds[name], number, "square"))
    caption = "The further right, the better are the widths that the search tried."
    return Figure("Scores of all widths", caption, (chart,), is_detail=True)


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


def score_title(run: RunRecord) -> str:
    """Return the title of an axis of scores.

    Args:
        run: The records of the run.

    Returns:
        The title.
    """
    metric = run.recipe.get("metric", "accuracy")
    return "validation accuracy in the supernet, %" if metric == "accuracy" else f"100 x {metric} in the supernet"


def _picks(run: RunRecord) -> list[tuple[float, float, str]]:
    """Return FLOPs, score in the supernet and name of each width that CafeNet picked."""
    flops = {(row.method, row.budget): row.flops for row in rows_of(run)}
    for each, gain in zip(run.entries, run.gains, strict=False):
        flops[each["method"], each["budget"]] = gain["models"][1]["flops"]
    return [
        (flops[key], 100 * entry["search_score"], f"{entry['method']} {entry['budget']}")
        for entry in run.entries
        for key in [(entry["method"], entry["budget"])]
        if key in flops and entry["search_score"] is not None and entry["method"].startswith("CafeNet")
    ]


def searched_last(run: RunRecord, names: list[str]) -> str:
    """Return the study that the first pick comes from; before there is one, the one that was scored last.

    Args:
        run: The records of the run.
        names: Names of the studies.

    Returns:
        The name.
    """
    own = [entry.get("supernet") for entry in run.entries if is_own(entry["method"])]
    return next((name for name in own if name in names), names[-1])


def _searched(run: RunRecord) -> set[str]:
    """Return the studies that CafeNet's picks come from."""
    return {str(each.get("supernet")) for each in run.entries if is_own(each["method"])}


def in_words(study: str) -> str:
    """Return the name of a supernet's directory in words.

    Args:
        study: The directory, relative to the run.

    Returns:
        The words.

    Example:
        >>> from cafenet.report.search_charts import in_words
        >>> in_words("supernet/25pct/stage-1"), in_words("supernet-fixed")
        ('supernet for 25%, stage 1', 'supernet-fixed')
    """
    head, *budget = study.split("/")
    words = [part.replace("pct", "%").replace("stage-", "stage ") for part in budget]
    return f"{head} for {', '.join(words)}" if words else head


def _widths(number: int) -> str:
    """Return a number of widths in words."""
    return f"{number:,} width{'s' if number != 1 else ''}"


def _short(search: str) -> str:
    """Shorten `Evolution(population=...) 50% seed 0 band ...` to `Evolution 50%`; the repr of a user's
    algorithm stays."""
    algorithm_and_budget = search.partition(" seed ")[0]
    return re.sub(r"^(\w+)\(.*\) ", r"\1 ", algorithm_and_budget)
