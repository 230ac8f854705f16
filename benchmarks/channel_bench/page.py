"""docs/channel_bench.md: what ranks the widths of the public table, and whose pick is best."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.channel_bench.screening import fit_line, orthogonal_rows
from benchmarks.channel_bench.supernets import PARTS, TRUSTS, judged, resnet_task, table_task, worths_of
from benchmarks.channel_bench.supernets import RESNET as RESNET_NAME
from benchmarks.channel_bench.table import PERCENTS, RESNET, Labels, judge, near_uniform_regret, read_labels
from benchmarks.common.results_file import Results
from cafenet.scoring.scorer import FloatArray

HOW = """\
# Labels that others made: a MobileNet of 211M FLOPs, 16,384 widths

Made by `python -m benchmarks.channel_bench` (`screen`, `supernets`, then `page`), which goes on where it was stopped.
The labels are those of Channel-Bench-Macro (Su et al.): every width was trained three times for 60 epochs on CIFAR-10
at 32x32 by the authors of the paper. Here everything is trained at 16x16 on parts of the 20,000 images at hand.

- Tau is Kendall's between a ranking and the mean label, over all 16,384 widths and over those within 2.5% of half the
  FLOPs. Regret is the best label within a budget minus that of the ranking's pick, in points. These measures were
  written down before the first training.
- *Screening*: 16 widths in an orthogonal array, each trained from scratch, and a line fitted to their accuracies.
- *Supernets* are trained and scored as on [the ranking page](ranking.md): 4.5 epochs of the full network, 10.5 of the
  supernet, 100 scored widths, and a line. Means over the seeds, in brackets the lowest and the highest.
- *Trust* is `Trend.trust`: the share of the fitted differences between groups that is believed. With 0 all groups have
  the same worth, which is the sum of logarithms.
"""
RESNET_HEAD = """
## The ResNet's table

1,436M FLOPs, too large to train here. Its supernets are those of the same network with a quarter of all channels
(`supernets --network resnet --ways fixed --seeds 3`); the line of what its groups are worth ranks the table's 16,384
widths. The rule stands in `benchmarks/channel_bench/supernets.py`.
"""
HEAD = "| ranking | CPU minutes | tau | tau at half | regret 75% | regret 50% | regret 25% |"


def markdown(results: Results) -> str:
    """The whole page."""
    labels = read_labels()
    lines = [HOW, HEAD, "| --- |" + " ---: |" * 6, *_floors(labels)]
    worths = {"labels, 60 epochs": fit_line(labels.quarters, labels.mean.tolist())}
    for name, found, minutes in _measured(results):
        worths[name] = np.mean([each / each.mean() for each in found], axis=0)
        lines += [_row(f"{name}, trust {trust:g}", found, trust, labels, minutes) for trust in TRUSTS[:-1]]
    lines += ["", "What each group is worth, relative to the mean (stem and first stream, three hidden widths, second"]
    lines += ["stream, a hidden width, last convolution):", "", "| by | worths |", "| --- | --- |"]
    lines += _worth_rows(worths)
    return "\n".join(lines + _resnet(results)) + "\n"


def _resnet(results: Results) -> list[str]:
    """Rank the ResNet's table, if a supernet of it was trained."""
    rows = results.rows(f"supernets {RESNET_NAME}")
    if not rows:
        return []
    labels = read_labels(RESNET)
    worths = {"labels, 60 epochs": fit_line(labels.quarters, labels.mean.tolist())}
    lines = [RESNET_HEAD, HEAD, "| --- |" + " ---: |" * 6, *_floors(labels)]
    for way, seeds in rows.items():
        found = [worths_of(row, resnet_task()) for row in seeds.values()]
        worths[f"supernets, {way}"] = np.mean([each / each.mean() for each in found], axis=0)
        lines += [_row(f"supernets, {way}, trust {trust:g}", found, trust, labels, _minutes(seeds)) for trust in TRUSTS]
    lines += ["", "Worths relative to the mean (stem and first stream, three hidden widths, second stream, two hidden"]
    return [*lines, "widths):", "", "| by | worths |", "| --- | --- |", *_worth_rows(worths)]


def _worth_rows(worths: dict[str, FloatArray]) -> list[str]:
    """Return a line of a table for each list of worths."""
    return [f"| {name} | {', '.join(f'{part:.2f}' for part in each / each.mean())} |" for name, each in worths.items()]


def _measured(results: Results) -> Iterator[tuple[str, list[FloatArray], float]]:
    """Name, worths by seed and mean CPU minutes of everything that is complete."""
    rows = orthogonal_rows(7)
    names = ["".join(map(str, row)) for row in rows.tolist()]
    for part in results.parts():
        known = results.rows(part)
        if part.startswith("screen") and all(name in known for name in names):
            minutes = sum(known[name]["seconds"] for name in names) / 60
            yield (
                part.replace("screen", "screening"),
                [fit_line(rows, [known[n]["validation"] for n in names])],
                minutes,
            )
    for part, suffix in PARTS.items():
        for way, seeds in results.rows(part).items():
            found = [worths_of(row, table_task()) for row in seeds.values()]
            yield f"supernets, {way}{suffix}", found, _minutes(seeds)


def _minutes(seeds: dict[str, Any]) -> float:
    return float(np.mean([row["train_seconds"] + row["score_seconds"] for row in seeds.values()])) / 60


def _floors(labels: Labels) -> list[str]:
    """The part of the page that needs no training of ours."""
    truth = fit_line(labels.quarters, labels.mean.tolist())
    first, others = labels.accuracies[:, 0], labels.accuracies[:, 1:].mean(axis=1)
    rankings = {
        "FLOPs": labels.flops_share,
        "sum of logarithms": labels.logarithms.sum(axis=1),
        "one training of 60 epochs (judged with itself among the labels)": first,
        "the mean of two trainings (likewise)": others,
        "a line fitted to the labels": labels.logarithms @ truth,
    }
    rows = [f"| {name} |  | {_cells([judge(scores, labels)])} |" for name, scores in rankings.items()]
    near = " | ".join(f"{near_uniform_regret(labels, percent):.2f}" for percent in PERCENTS)
    return [*rows, f"| widths nearest to uniform, their mean |  |  |  | {near} |"]


def _row(name: str, found: list[FloatArray], trust: float, labels: Labels, minutes: float) -> str:
    return f"| {name} | {minutes:.0f} | {_cells([judged(worths, trust, labels) for worths in found])} |"


def _cells(found: list[dict[str, float]]) -> str:
    return " | ".join(_spread([each[measure] for each in found]) for measure in found[0])


def _spread(values: list[float]) -> str:
    mean = f"{np.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} [{min(values):.2f}, {max(values):.2f}]"
