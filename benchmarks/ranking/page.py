"""docs/ranking.md, made of what was measured."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.common.intervals import cell_of
from benchmarks.common.results_file import Results
from benchmarks.ranking import freedom
from benchmarks.ranking.labels import EPOCHS as LABEL_EPOCHS
from benchmarks.ranking.law import fit_law, known_truth
from benchmarks.ranking.networks import BAND, BUILDERS, NUM_TRAIN, NUM_WIDTHS, Task, task
from benchmarks.ranking.picks import BUDGET, NUM_SCORED, REFERENCE, SEARCHES, without_supernet
from benchmarks.ranking.ranking import (
    KINDS,
    PRIMARY,
    SCORES,
    Measured,
    Truth,
    difference,
    measures,
    measures_of,
)
from benchmarks.ranking.sides import CENTRE, Sides, sides, sides_of
from benchmarks.ranking.supernets import EPOCHS, FULL_EPOCHS, NUM_VALIDATION, WAYS
from benchmarks.ranking.trends import NUM_SAMPLES
from cafenet.common.statistics import PairedDifference, compare_paired
from cafenet.scoring.scorer import FloatArray

DIGITS = (3, 3, 2, 2)
DEFAULT = "trend of accuracies"
"""The measure by which the default search ranks."""
QUESTIONS = {
    "r=1 - fixed, equal epochs": ("r=1 race", "fixed"),
    "r=1 - fixed, about equal time": ("r=1 race", "fixed, 1.5x epochs"),
    "r=1: race - exact": ("r=1 race", "r=1 exact"),
    "r=1: random candidates - best ones": ("r=1 random candidates", "r=1 race"),
    "r=1: random candidates - fixed": ("r=1 random candidates", "fixed"),
    "r=2 - fixed, equal epochs": ("r=2 race", "fixed"),
    "r=2 - r=1, equal epochs": ("r=2 race", "r=1 race"),
    "r=2: race - exact": ("r=2 race", "r=2 exact"),
    "bilateral - fixed": ("bilateral", "fixed"),
    "sandwich rule - fixed": ("fixed, sandwich", "fixed"),
    "fixed: over all widths - near the budget": ("fixed, over all widths", "fixed"),
    "over all widths: r=1 - fixed": ("r=1 race, over all widths", "fixed, over all widths"),
}
"""The differences that the paper and its cost stand on."""
INTRODUCTION = f"""\
# Does a supernet rank widths as training from scratch does?

Made by `make bench-ranking` (`python -m benchmarks.ranking`, which says how to restart and share it; `--ways` and
`--seeds` rerun a row). CIFAR-10 at 16x16, {NUM_TRAIN:,} training images; {NUM_WIDTHS} widths between {BAND[0]:.0%} and
{BAND[1]:.0%} of FLOPs. A label is the accuracy on the 5,000 test images after {LABEL_EPOCHS} epochs from scratch, the
mean over two seeds (0 and 1; supernets of these seeds begin with the same random weights).

- A supernet is trained as a search does by default: {FULL_EPOCHS:g} epochs of the full network, its channels sorted by
  importance, then {EPOCHS:g} epochs of widths about half the FLOPs (or as many as its name says). All supernets of a
  seed begin with the same full network. *Over all widths* samples uniformly over bins instead, as in the paper. The
  sandwich rule trains four widths a step, for a quarter of the epochs. Ways that have no row yet were not measured.
  Random candidates, r=2, bilateral and the sandwich rule were measured later, with full networks that were trained
  anew: they have the seed in common with the others, and no more.
- It scores every width by its best candidate on {NUM_VALIDATION:,} validation images, batch norm recalibrated. Widths
  are ranked by accuracy, by loss, or by the *trend* of either: the line that is fitted over the logarithms of the
  groups' shares. The default search follows the trend of accuracies.
- Tau is Kendall's, over all pairs of widths or over those whose FLOPs differ by no more than 3% of the full network's,
  as in a search for one budget. Regret is the best label minus that of the width with the highest score, in points.
- The primary metric, named before the first run, is {PRIMARY}. Differences are paired by seed, with 95% intervals,
  bold where these do not hold zero. Training is in CPU seconds, without the full network's; the fixed sharing with 1.5x
  epochs stands for equal time, but on the residual network r=1 still takes a fifth longer, which favours it there.
  There are many comparisons on this page, and of twenty without any difference one is expected to be bold.
- Two floors need no supernet: FLOPs, and the sum of the logarithms of the groups' shares.
"""
TRENDS = f"""\
Which widths a trend should be fitted to (`python -m benchmarks.ranking trends`): {NUM_SAMPLES} widths drawn as the
default search draws them, the logarithms of their groups' shares this far apart, scored by supernets of the fixed
sharing; the trend then ranks the labelled widths, which it has not seen. The labelled widths lie far apart themselves.
The default search draws widths 0.3 apart all the same, since losses of widths 0.7 apart did not lead it to better
networks, on one seed ([Peers](peers.md), *one stage, losses farther apart*)."""
PICKS = f"""\
Whole searches at {BUDGET} of FLOPs (`python -m benchmarks.ranking picks`), {NUM_SCORED} widths scored, all of a seed
from the same full network. What a search finds has no label, so it is judged by a line: the fit of the labels of all
widths over the logarithms of the groups' widths; labels far from the line, of layers of a few channels, count less
(`benchmarks/ranking/law.py`). A trend has the same form as the line, so the line favours it before other searches, and
trainings of what it finds do not bear all of that out ([Ablations](ablations.md)).
Two stages share the epochs of one training, the second goes on with the first one's weights; they share the number of
scored widths, too, as is the default, or have as many in each. These searches are of revision 36db0cc, where the best
width of a trend was sought by exchanges between two groups alone."""
SIDES = f"""\
Why single scores rank worse than their trend: points of accuracy for each unit of a group's logarithm, below and above
{CENTRE:.0%} of its channels, about which supernets are trained. A line with a bend there in every group, fitted to the
labels and to the accuracies that supernets of the fixed sharing give the same widths (mean and standard deviation over
seeds). *Line*: without bends, as a trend sees the labels."""
EARLIER = """\
Supernets of 30 epochs in all, scored on 4,000 images, few seeds each: made by the same command at revision eb8067c
(eace6e3 where channels are *sorted by all weights*). Without *near the budgets* or *full network first*, widths are
sampled and supernets begun as in the paper."""


def markdown(results: Results) -> str:
    """The page."""
    lines = [INTRODUCTION.rstrip(), *_both(results)]
    truths = {name: known_truth(results, task(name)) for name in BUILDERS}
    lines += freedom.section(results, {name: known for name, known in truths.items() if known is not None})
    for name in BUILDERS:
        lines += _network(results, task(name))
    return "\n".join(lines) + "\n"


def _both(results: Results) -> list[str]:
    """Ways to train compared over both networks, every network and seed a pair."""
    together: Measured = {}
    for network in BUILDERS:
        known = known_truth(results, task(network))
        rows = {} if known is None else _measured(results.rows(f"supernets {network}"), known)
        for name, seeds in rows.items():
            together.setdefault(name, {}).update({f"{network} {seed}": row for seed, row in seeds.items()})
    return ["", "## Both networks", "", "Every network and seed is a pair.", *_questions(together)]


def _network(results: Results, work: Task) -> list[str]:
    known = known_truth(results, work)
    if known is None:
        return ["", f"## {work.name}", "", "No labels yet."]
    rows = results.rows(f"supernets {work.name}")
    measured = _measured(rows, known)
    lines = [
        "",
        f"## {work.name}: {work.space.flops():,} FLOPs, {len(work.space.groups)} groups",
        "",
        f"{len(known.numbers)} widths labelled with {_seeds(known)}; labels {known.mean.min():.2f} to "
        f"{known.mean.max():.2f}%, median {np.median(known.mean):.2f}%.",
        *_reading(measured, known),
        "",
        *_head("no supernet", *KINDS),
        *(_row(name, _cells(measures_of(scores, known))) for name, scores in _floors(known).items()),
        "",
        *_head("supernet", "seeds", "training, s", "accuracy at 50, 70, 100% width"),
        *(_training(name, rows[name]) for name in WAYS if name in rows),
    ]
    for score in SCORES:
        lines += ["", f"Ranked by {score}:", "", *_head("supernet", "seeds", *KINDS)]
        lines += [_row(name, _means(measured[name], score)) for name in WAYS if name in measured]
    lines += [*_questions(measured), *_ways_to_rank(measured), *_sides(rows, work, known)]
    lines += [*_trends(results, work, known), *_picks(results, work, known)]
    return [*lines, *_earlier(results, work, known)]


def _measured(rows: dict[str, Any], known: Truth) -> Measured:
    return {name: {seed: measures(row, known) for seed, row in seeds.items()} for name, seeds in rows.items()}


def _floors(known: Truth) -> dict[str, Any]:
    return {"FLOPs alone": known.flops, "sum of logarithms": known.logarithms.sum(axis=1)}


def _reading(measured: Measured, known: Truth) -> list[str]:
    """The tables in words, as far as the intervals go."""
    if len(measured.get("fixed", {})) < 2:
        return []
    taus = {score: _mean(measured["fixed"], f"tau by {score}") for score in SCORES}
    near = _mean(measured["fixed"], f"tau at equal FLOPs by {DEFAULT}")
    floors = {name: measures_of(scores, known) for name, scores in _floors(known).items()}
    flops, even = floors["FLOPs alone"], floors["sum of logarithms"]
    lines = [
        "",
        f"- With the default, the fixed sharing, tau is {taus[DEFAULT]:.2f} by the trend of accuracies, "
        f"{taus['trend of losses']:.2f} by that of losses, {taus['accuracy']:.2f} by accuracy and "
        f"{taus['loss']:.2f} by loss; by FLOPs alone it is {flops['tau']:.2f}, and by the sum of logarithms, which "
        f"prefers uniform widths, {even['tau']:.2f}. Among widths of about equal FLOPs, where a search decides, the "
        f"trend has {near:.2f}, FLOPs {flops['tau at equal FLOPs']:.2f} and the sum "
        f"{even['tau at equal FLOPs']:.2f}.",
    ]
    for question, names in QUESTIONS.items():
        found = [difference(measured, *names, f"tau by {score}") for score in ("accuracy", DEFAULT)]
        if found[0] is not None and found[0].num_pairs > 1:
            texts = [f"by {s} {_verdict(each)}" for s, each in zip(("accuracy", "trend"), found, strict=True)]
            lines.append(f"- {question}: {', '.join(texts)} ({found[0].num_pairs} seeds).")
    return lines


def _verdict(found: PairedDifference | None) -> str:
    assert found is not None
    word = "no clear difference" if not found.is_clear else "better" if found.mean > 0 else "worse"
    return f"{word}, {cell_of(found, 3)}"


def _questions(measured: Measured) -> list[str]:
    """Differences between ways to train, by the primary metric's score and by the measure of the default search."""
    lines = ["", "Ways to train compared:", "", *_head("difference", "ranked by", "pairs", *KINDS)]
    for question, names in QUESTIONS.items():
        for score in ("accuracy", DEFAULT):
            found = [difference(measured, *names, f"{kind} by {score}") for kind in KINDS]
            if found[0] is not None:
                lines.append(_row(question, [score, str(found[0].num_pairs), *_differences(found)]))
    return lines


def _ways_to_rank(measured: Measured) -> list[str]:
    """A table of the supernets, each ranked in two ways."""
    pairs = (("loss", "accuracy"), (DEFAULT, "accuracy"), ("trend of losses", DEFAULT))
    lines = ["", "Ways to rank compared, on the same supernets:", ""]
    lines += _head("difference", "supernet", "seeds", *KINDS)
    for first, second in pairs:
        for name in ("fixed", "r=1 race"):
            seeds = measured.get(name, {}).values()
            if seeds:
                both = [[[row[f"{k} by {score}"] for row in seeds] for score in (first, second)] for k in KINDS]
                found = [compare_paired(*each) for each in both]
                lines.append(_row(f"{first} - {second}", [name, str(len(seeds)), *_differences(found)]))
    return lines


def _sides(rows: dict[str, Any], work: Task, known: Truth) -> list[str]:
    """Slopes of scores and labels along the width of one group."""
    found = sides_of(rows.get("fixed", {}), known)
    if len(found) < 2:
        return []
    labels, law = sides(known.logarithms, known.mean), fit_law(work, known).worths
    columns = ("labels, line", "labels, below", "labels, above", "supernets, below", "supernets, above")
    lines = ["", SIDES, "", *_head("group", *columns)]
    for number, group in enumerate(work.space.groups):
        scores = (_spread([each[number] for each in side], 1) for side in _both_sides(found))
        cells = (f"{value[number]:.1f}" for value in (law, labels.below, labels.above))
        lines.append(_row(group.name, [*cells, *scores]))
    below, above = (float(np.corrcoef(np.mean(side, axis=0), law)[0, 1]) for side in _both_sides(found))
    errors = [np.mean([getattr(each, name) for each in found]) for name in ("error_of_line", "error")]
    narrow, wide = (float(np.mean(side)) for side in _both_sides(found))
    return [
        *lines,
        "",
        f"On average, scores fall {narrow / labels.below.mean():.1f} times as steeply as labels on the narrow "
        f"side, and on the wide one they change by {wide:+.1f} where labels change by {labels.above.mean():+.1f}: a "
        "supernet serves the widths best that it was trained on. "
        f"With the line of the labels, slopes below the centre correlate by {below:.2f} over the groups, those above "
        f"by {above:.2f}. A line over all scores leaves {errors[0]:.1f} points, one with bends {errors[1]:.1f}.",
    ]


def _both_sides(found: list[Sides]) -> list[list[FloatArray]]:
    return [[each.below for each in found], [each.above for each in found]]


def _trends(results: Results, work: Task, known: Truth) -> list[str]:
    """Trends of widths that were drawn as a search draws them, by how far these lie apart."""
    seeds = results.rows(f"trends {work.name}").values()
    if not seeds:
        return []
    names = list(next(iter(seeds)))
    found = {name: [measures_of(known.logarithms @ np.array(row[name]), known) for row in seeds] for name in names}
    lines = ["", TRENDS, ""]
    lines += _head("fitted to", "seeds", *KINDS, f"tau at equal FLOPs minus {names[0]}")
    for name in names:
        cells = [_spread([row[k] for row in found[name]], digits) for k, digits in zip(KINDS, DIGITS, strict=True)]
        both = ([row["tau at equal FLOPs"] for row in found[each]] for each in (name, names[0]))
        last = "" if name == names[0] else cell_of(compare_paired(*both), 3)
        lines.append(_row(name, [str(len(found[name])), *cells, last]))
    return lines


def _picks(results: Results, work: Task, known: Truth) -> list[str]:
    """Results of whole searches, judged by the law of the labels."""
    rows = results.rows(f"picks {work.name}")
    if not rows:
        return []
    law = fit_law(work, known)
    found = {
        name: {seed: law.accuracy(widths) for seed, widths in rows[name].items()} for name in SEARCHES if name in rows
    }
    lines = ["", PICKS, law.reading, "", *_head("search", "seeds", "accuracy by the line, %", f"minus {REFERENCE}")]
    for name, seeds in found.items():
        both = sorted(set(seeds) & set(found.get(REFERENCE, {})))
        pair = [[found[each][seed] for seed in both] for each in (name, REFERENCE)] if both else None
        last = cell_of(compare_paired(*pair), 2) if pair and name != REFERENCE else ""
        lines.append(_row(name, [str(len(seeds)), _spread(list(seeds.values()), 2), last]))
    for name, widths in without_supernet(work, law).items():
        lines.append(_row(name, ["", f"{law.accuracy(widths):.2f}", ""]))
    return lines


def _earlier(results: Results, work: Task, known: Truth) -> list[str]:
    measured = _measured(results.rows(f"supernets {work.name}, 30 epochs"), known)
    if not measured:
        return []
    lines = ["", f"### {work.name}: longer trainings, few seeds", "", EARLIER, ""]
    lines += _head("supernet", "seeds", *(f"tau by {score}" for score in SCORES), f"at equal FLOPs by {DEFAULT}")
    for name, seeds in measured.items():
        metrics = [*(f"tau by {score}" for score in SCORES), f"tau at equal FLOPs by {DEFAULT}"]
        cells = [_spread([row[metric] for row in seeds.values()], 3) for metric in metrics]
        lines.append(_row(name, [str(len(seeds)), *cells]))
    return lines


def _training(name: str, seeds: dict[str, Any]) -> str:
    seconds = np.median([row["train_seconds"] for row in seeds.values()])
    used = np.mean([row["balanced"] for row in seeds.values()], axis=0)
    return _row(name, [str(len(seeds)), f"{seconds:.0f}", ", ".join(f"{value:.1f}" for value in used)])


def _means(seeds: dict[str, dict[str, float]], score: str) -> list[str]:
    values = [[row[f"{kind} by {score}"] for row in seeds.values()] for kind in KINDS]
    return [str(len(seeds)), *(_spread(each, digits) for each, digits in zip(values, DIGITS, strict=True))]


def _mean(seeds: dict[str, dict[str, float]], metric: str) -> float:
    return float(np.mean([row[metric] for row in seeds.values()]))


def _spread(values: list[float], digits: int) -> str:
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def _cells(found: dict[str, float]) -> list[str]:
    return [f"{found[kind]:.{digits}f}" for kind, digits in zip(KINDS, DIGITS, strict=True)]


def _differences(found: Iterable[PairedDifference | None]) -> list[str]:
    return [cell_of(each, digits) for each, digits in zip(found, DIGITS, strict=True)]


def _head(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", "| --- |" + " ---: |" * (len(columns) - 1)]


def _row(name: str, cells: Iterable[str]) -> str:
    return f"| {' | '.join([name, *cells])} |"


def _seeds(known: Truth) -> str:
    text = "one seed" if known.num_seeds == 1 else f"{known.num_seeds} seeds"
    if np.isnan(known.reliability):
        return f"{text}, whose noise is not known yet"
    return f"{text}, tau between the labels of two seeds {known.reliability:.2f}"
