"""docs/ranking.md, made of what was measured."""

from typing import Any

import numpy as np
from benchmarks.ranking.labels import EPOCHS as LABEL_EPOCHS
from benchmarks.ranking.networks import BAND, BUILDERS, NUM_TRAIN, NUM_VALIDATION, NUM_WIDTHS, Task, task
from benchmarks.ranking.ranking import (
    METRICS,
    PRIMARY,
    Truth,
    difference,
    measures,
    regret,
    regret_at_equal_flops,
    tau_at_equal_flops,
    truth,
)
from benchmarks.ranking.supernets import EPOCHS, WAYS
from benchmarks.search_results import Results
from scipy.stats import kendalltau

from cafenet.scoring import FloatArray

DIGITS = (3, 3, 3, 3, 2, 2, 2, 2)


def markdown(results: Results) -> str:
    """The page."""
    lines = [
        "# Does a supernet rank widths as training from scratch does?",
        "",
        "Made by `make bench-ranking` (`python -m benchmarks.ranking`, which says how to restart and share it).",
        f"CIFAR-10 at 16x16, {NUM_TRAIN:,} training, {NUM_VALIDATION:,} validation and 5,000 test images;",
        f"{NUM_WIDTHS} widths between {BAND[0]:.0%} and {BAND[1]:.0%} of FLOPs. A label is the test accuracy after",
        f"{LABEL_EPOCHS} epochs from scratch. A supernet is trained for {EPOCHS} epochs (or as its name says); it",
        "scores every width by its best candidate, batch norm recalibrated. Tau is Kendall's, over all pairs of",
        "widths or over those whose FLOPs differ by no more than 3% of the full network's. Regret is the best label",
        "minus that of the width with the highest score. The primary metric, named before the first run, is",
        f"{PRIMARY}; differences to the fixed pattern are paired by seed, with 95% intervals, bold where these do not",
        "hold zero. *Near the budgets* samples widths of 30% to 70% of FLOPs whose groups' shares lie close together",
        "(`flops_band`, `spread`). *Full network first* does so too, after 0.3 of the epochs for the full network",
        "(`full_share`), which is the default of a search for 50%. The others sample uniformly over bins, as in the",
        "paper. Two floors need no supernet: FLOPs, and the sum of the logarithms of the groups' shares.",
    ]
    for name in BUILDERS:
        lines += _network(results, task(name))
    return "\n".join(lines) + "\n"


def _network(results: Results, work: Task) -> list[str]:
    widths = work.bins.widths(work.taken)
    known = truth(results.rows(f"labels {work.name}"), work.space.flops(widths) / work.space.flops())
    if known is None:
        return ["", f"## {work.name}", "", "No labels yet."]
    rows = results.rows(f"supernets {work.name}")
    evenness = np.log(widths / work.bins.widths(work.bins.num_bins))[known.numbers].sum(axis=1)
    lines = [
        "",
        f"## {work.name}: {work.space.flops():,} FLOPs, {len(work.space.groups)} groups",
        "",
        f"{len(known.numbers)} widths labelled with {_seeds(known)}; labels {known.mean.min():.2f} to "
        f"{known.mean.max():.2f}%, median {np.median(known.mean):.2f}%.",
        "",
        f"| supernet | seeds | training, s | {' | '.join(METRICS)} | accuracy at 50, 70, 100% width |",
        "| --- |" + " ---: |" * (len(METRICS) + 3),
        _floor("FLOPs alone", known.flops, known),
        _floor("sum of logarithms", evenness, known),
    ]
    lines += [_row(name, rows[name], known) for name in WAYS if name in rows]
    lines += ["", "Minus the fixed pattern:", "", f"| supernet | {' | '.join(METRICS)} |"]
    lines += ["| --- |" + " ---: |" * len(METRICS)]
    lines += [_difference(name, rows, known) for name in WAYS if name in rows and name != "fixed"]
    return lines


def _seeds(known: Truth) -> str:
    text = "one seed" if known.num_seeds == 1 else f"{known.num_seeds} seeds"
    if np.isnan(known.reliability):
        return f"{text}, whose noise is not known yet"
    return f"{text}, tau between the labels of two seeds {known.reliability:.2f}"


def _floor(name: str, scores: FloatArray, known: Truth) -> str:
    tau = kendalltau(scores, known.mean).statistic
    near = tau_at_equal_flops(scores, known)
    regrets = f"{regret(scores, known.mean):.2f} | | {regret_at_equal_flops(scores, known):.2f} | "
    return f"| {name} | | | {tau:.3f} | | {near:.3f} | | {regrets} | |"


def _row(name: str, seeds: dict[str, Any], known: Truth) -> str:
    found = [measures(row, known) for row in seeds.values()]
    cells = []
    for metric, digits in zip(METRICS, DIGITS, strict=True):
        values = [each[metric] for each in found]
        spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
        cells.append(f"{np.mean(values):.{digits}f}{spread}")
    seconds = np.median([row["train_seconds"] for row in seeds.values()])
    balanced = [row["balanced"] for row in seeds.values() if "balanced" in row]
    used = ", ".join(f"{value:.1f}" for value in np.mean(balanced, axis=0)) if balanced else ""
    return f"| {name} | {len(seeds)} | {seconds:.0f} | {' | '.join(cells)} | {used} |"


def _difference(name: str, rows: dict[str, Any], known: Truth) -> str:
    cells = []
    for metric, digits in zip(METRICS, DIGITS, strict=True):
        found = difference(rows, name, "fixed", known, metric)
        if found is None or found.num_pairs < 2:
            cells.append("" if found is None else f"{found.mean:+.{digits}f} (one seed)")
        else:
            text = f"{found.mean:+.{digits}f} [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"
            cells.append(f"**{text}**" if found.is_clear else text)
    return f"| {name} | {' | '.join(cells)} |"
