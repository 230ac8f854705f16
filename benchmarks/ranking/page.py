"""docs/ranking.md, made of what was measured."""

from typing import Any

import numpy as np
from benchmarks.intervals import cell_of
from benchmarks.ranking.labels import EPOCHS as LABEL_EPOCHS
from benchmarks.ranking.networks import BAND, BUILDERS, NUM_TRAIN, NUM_VALIDATION, NUM_WIDTHS, Task, task
from benchmarks.ranking.ranking import (
    KINDS,
    PRIMARY,
    SCORES,
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

from cafenet.pairing import PairedDifference, compare_paired
from cafenet.scoring import FloatArray

DIGITS = (3, 3, 2, 2)
AFTER = ("tau minus fixed", "tau minus by accuracy")
QUESTIONS = (
    ("r=1 - fixed, equal epochs", "r=1 race{}", "fixed{}"),
    ("r=1 - fixed, equal time", "r=1 race{}", "fixed, 2x epochs{}"),
    ("race - exact, r=1", "r=1 race{}", "r=1 exact{}"),
)
"""What the paper and its cost stand on, asked once for every way to sample widths."""
FULL_FIRST, EARLIER = "full network first", "full network first, sorted by all weights"
SAMPLED = {"uniform": ""} | {name: f", {name}" for name in ("near the budgets", FULL_FIRST, EARLIER)}
NAMES = [*WAYS, *(f"{name}, sorted by all weights" for name in WAYS if FULL_FIRST in name)]


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
        "minus that of the width with the highest score. Ranked by *trend*, widths take the value of the line that is",
        "fitted to the accuracies over the logarithms of their groups' shares, as in the default search (added after",
        f"the first results). The primary metric, named before the first run, is {PRIMARY}; differences are paired",
        "by seed, with 95% intervals, bold where these do not hold zero. *Near the budgets* samples widths of 30% to",
        "70% of FLOPs whose groups' shares lie close together (`flops_band`, `spread`). *Full network first* does so",
        "too, after 0.3 of the epochs for the full network (`full_share`), as a search does (35% to 65%); its channels",
        "are then sorted by the weights that read them. Rows that say *sorted by all weights* were measured by the",
        "same command at revision eace6e3, before that change.",
        "The others sample uniformly over bins, as in the paper. Two floors need no supernet: FLOPs, and the sum of",
        "the logarithms of the groups' shares.",
    ]
    for name in BUILDERS:
        lines += _network(results, task(name))
    return "\n".join(lines) + "\n"


def _network(results: Results, work: Task) -> list[str]:
    widths = work.bins.widths(work.taken)
    logarithms = np.log(widths / work.bins.widths(work.bins.num_bins))
    known = truth(results.rows(f"labels {work.name}"), work.space.flops(widths) / work.space.flops(), logarithms)
    if known is None:
        return ["", f"## {work.name}", "", "No labels yet."]
    rows = results.rows(f"supernets {work.name}")
    lines = [
        "",
        f"## {work.name}: {work.space.flops():,} FLOPs, {len(work.space.groups)} groups",
        "",
        f"{len(known.numbers)} widths labelled with {_seeds(known)}; labels {known.mean.min():.2f} to "
        f"{known.mean.max():.2f}%, median {np.median(known.mean):.2f}%.",
        "",
        *_head("no supernet"),
        _floor("FLOPs alone", known.flops, known),
        _floor("sum of logarithms", known.logarithms.sum(axis=1), known),
        "",
        "| supernet | seeds | training, s | accuracy at 50, 70, 100% width |",
        "| --- | ---: | ---: | ---: |",
    ]
    lines += [_training(name, rows[name]) for name in NAMES if name in rows]
    for score in SCORES:
        lines += ["", f"Ranked by {score}:", "", *_head("supernet", "seeds", after=AFTER)]
        for name in (name for name in NAMES if name in rows):
            cells = [name, str(len(rows[name])), *_means(rows[name], known, score)]
            cells += [_minus_fixed(name, rows, known, score), _minus_accuracy(rows[name], known, score)]
            lines.append(f"| {' | '.join(cells)} |")
    return lines + _questions(rows, known) + _reading(rows, known)


def _reading(rows: dict[str, Any], known: Truth) -> list[str]:
    """The tables in words, as far as the intervals go; of the default's way to sample widths."""
    for ending in (FULL_FIRST, EARLIER):
        names = [f"{name}, {ending}" for name in ("r=1 race", "r=1 exact", "fixed", "fixed, 2x epochs")]
        if all(len(rows.get(name, {})) >= 2 for name in names):
            break
    else:
        return []
    free, exact, fixed, longer = names
    was = " (but their channels are sorted by all weights, as before)" if ending == EARLIER else ""
    means = [np.mean([measures(row, known)[f"tau by {score}"] for row in rows[fixed].values()]) for score in SCORES]
    floor, even = (kendalltau(each, known.mean).statistic for each in (known.flops, known.logarithms.sum(axis=1)))
    ahead = "ahead of" if means[2] > even else "not ahead of"
    near = np.mean([measures(row, known)["tau at equal FLOPs by trend"] for row in rows[fixed].values()])
    near_even = tau_at_equal_flops(known.logarithms.sum(axis=1), known)

    def said(first: str, second: str) -> str:
        texts = []
        for score in ("accuracy", "trend"):
            found = difference(rows, first, second, known, f"tau by {score}")
            texts.append(f"by {score} {_verdict(found)}, {cell_of(found, 3)}")
        return f"{'; '.join(texts)}; {found.num_pairs} seeds"

    return [
        "",
        f"In words, for supernets that are trained as a search does by default{was}:",
        "",
        f"- Ranked by trend, tau is {means[2]:.2f}; by accuracy {means[0]:.2f}, by loss {means[1]:.2f}, by FLOPs alone"
        f" {floor:.2f}. So the default search takes the best width of a trend, not the highest score.",
        f"- The sum of the groups' logarithms, which needs no supernet and prefers uniform widths, has {even:.2f}; the"
        f" trend is {ahead} it. Among widths of about equal FLOPs, where a search decides, the trend has {near:.2f} and"
        f" the sum {near_even:.2f}.",
        f"- Tau of r=1 against the fixed pattern at equal epochs: {said(free, fixed)}.",
        f"- The same at about equal time, the fixed pattern trained twice as long: {said(free, longer)}.",
        f"- r=1 by the race against all candidates on the whole batch: {said(free, exact)}.",
    ]


def _verdict(found: PairedDifference) -> str:
    if not found.is_clear:
        return "no clear difference"
    return "better" if found.mean > 0 else "worse"


def _head(*before: str, after: tuple[str, ...] = ()) -> list[str]:
    columns = [*before, *KINDS, *after]
    return [f"| {' | '.join(columns)} |", "| --- |" + " ---: |" * (len(columns) - 1)]


def _questions(rows: dict[str, Any], known: Truth) -> list[str]:
    """Locally free against fixed and race against exact, under every way to sample widths that has both."""
    lines = ["", "Locally free or fixed, race or exact, and how channels are sorted:", ""]
    lines += _head("difference", "widths", "ranked by", "seeds")
    asked = [
        (question, sampled, first.format(ending), second.format(ending))
        for question, first, second in QUESTIONS
        for sampled, ending in SAMPLED.items()
    ]
    asked += [
        (f"{way}, sorted by readers - by all weights", FULL_FIRST, f"{way}, {FULL_FIRST}", f"{way}, {EARLIER}")
        for way in ("fixed", "r=1 race")
    ]
    for question, sampled, *names in asked:
        num_pairs = len(set(rows.get(names[0], {})) & set(rows.get(names[1], {})))
        for score in SCORES if num_pairs else ():
            found = [difference(rows, *names, known, f"{kind} by {score}") for kind in KINDS]
            cells = [cell_of(each, digits) for each, digits in zip(found, DIGITS, strict=True)]
            lines.append(f"| {question} | {sampled} | {score} | {num_pairs} | {' | '.join(cells)} |")
    return lines


def _seeds(known: Truth) -> str:
    text = "one seed" if known.num_seeds == 1 else f"{known.num_seeds} seeds"
    if np.isnan(known.reliability):
        return f"{text}, whose noise is not known yet"
    return f"{text}, tau between the labels of two seeds {known.reliability:.2f}"


def _floor(name: str, scores: FloatArray, known: Truth) -> str:
    taus = f"{kendalltau(scores, known.mean).statistic:.3f} | {tau_at_equal_flops(scores, known):.3f}"
    return f"| {name} | {taus} | {regret(scores, known.mean):.2f} | {regret_at_equal_flops(scores, known):.2f} |"


def _training(name: str, seeds: dict[str, Any]) -> str:
    seconds = np.median([row["train_seconds"] for row in seeds.values()])
    used = np.mean([row["balanced"] for row in seeds.values()], axis=0)
    return f"| {name} | {len(seeds)} | {seconds:.0f} | {', '.join(f'{value:.1f}' for value in used)} |"


def _means(seeds: dict[str, Any], known: Truth, score: str) -> list[str]:
    found = [measures(row, known) for row in seeds.values()]
    cells = []
    for kind, digits in zip(KINDS, DIGITS, strict=True):
        values = [each[f"{kind} by {score}"] for each in found]
        spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
        cells.append(f"{np.mean(values):.{digits}f}{spread}")
    return cells


def _minus_fixed(name: str, rows: dict[str, Any], known: Truth, score: str) -> str:
    return "" if name == "fixed" else cell_of(difference(rows, name, "fixed", known, f"tau by {score}"), 3)


def _minus_accuracy(seeds: dict[str, Any], known: Truth, score: str) -> str:
    """The same supernets, ranked in another way."""
    if score == "accuracy":
        return ""
    found = [measures(row, known) for row in seeds.values()]
    by_both = [[each[f"tau by {name}"] for each in found] for name in (score, "accuracy")]
    return cell_of(compare_paired(*by_both), 3)
