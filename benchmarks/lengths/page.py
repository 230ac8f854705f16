"""docs/lengths.md, made of the results."""

from statistics import mean, stdev
from typing import Any

from benchmarks.common.intervals import cell_of
from benchmarks.common.results_file import Results
from benchmarks.lengths.distilled import SUFFIX
from cafenet.common.statistics import compare_paired

HEAD = """\
# Epochs of the supernet and of the slim model

Made by `python -m benchmarks.lengths`, whose first lines hold the rule, written down before the first run. Networks
come trained, the budget is a quarter of the FLOPs, and 20 epochs in all are divided between the supernet and the
fine-tuning of the slim model in different ways. Accuracy in percent on 6,000 images of CIFAR-10 at 16x16 that nothing
else uses, mean and standard deviation over the seeds. *Uniform beside* a row has the same fine-tuning as that row's
slim model. *Trust* is `Trend.trust`, the share of the fitted differences between groups that is believed.
"""


LONG = """
## Five times as long

`python -m benchmarks.lengths --long`: every training has five times as many steps, that of the original network too, on
16,000 images; the 5,000 test images judge. The ways are named as above.
"""

DISTILLED = """
## Fine-tuning with the given model as the teacher

`python -m benchmarks.lengths --distilled --seeds 2`: 5 epochs of the supernet and 15 of fine-tuning, without and with
distillation from the trained original (half of the loss, temperature 4), for the slim model and for Uniform; the rule
stands in `benchmarks/lengths/distilled.py`. The images judge that judge above.
"""


def markdown(results: Results) -> str:
    """Return the whole page."""
    parts = [part for part in results.parts() if results.rows(part)]
    suffix = ", five times as long"
    short = [part for part in parts if not part.endswith((suffix, SUFFIX))]
    longer = [part for part in parts if part.endswith(suffix)]
    lines = [HEAD, *_tables(results, short, "")]
    if longer:
        lines += [LONG, *_tables(results, longer, suffix)]
    taught = [part for part in parts if part.endswith(SUFFIX)]
    if taught:
        lines += [DISTILLED, *_tables(results, taught, SUFFIX)]
    return "\n".join(lines) + "\n"


def _tables(results: Results, networks: list[str], suffix: str) -> list[str]:
    """Return the table of accuracies and that of differences."""
    names = list(dict.fromkeys(name for network in networks for name in results.rows(network)))
    titles = " | ".join(network.removesuffix(suffix) for network in networks)
    lines = [f"| model | {titles} |", "| --- |" + " ---: |" * len(networks)]
    for name in names:
        lines.append(f"| {name} | {' | '.join(_cell(results.rows(each).get(name, {})) for each in networks)} |")
    ours = [name for name in names if name.startswith("CafeNet")]
    lines += ["", "| difference | points |", "| --- | ---: |"]
    for place, name in enumerate(ours):
        others = [other for other in names if other.startswith("Uniform,") or _is_beside(other, name)]
        for other in [*others, *ours[:place]]:
            pairs = _pairs(results, networks, name, other)
            if pairs:
                found = cell_of(compare_paired(*zip(*pairs, strict=True)))
                lines.append(f"| {name} minus {other} | {found} ({len(pairs)} pairs) |")
    return lines


def _is_beside(other: str, name: str) -> bool:
    """Return whether a Uniform has the fine-tuning of a row: that of its division, whatever its trust."""
    return other.startswith("Uniform beside ") and name.startswith(other.removeprefix("Uniform beside "))


def _cell(rows: dict[str, dict[str, Any]]) -> str:
    values = [row["accuracy"] for row in rows.values()]
    if not values:
        return ""
    return f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def _pairs(results: Results, networks: list[str], name: str, other: str) -> list[tuple[float, float]]:
    """Return the accuracies of two rows, by network and seed."""
    pairs = []
    for network in networks:
        own, their = (results.rows(network).get(each, {}) for each in (name, other))
        pairs += [(own[seed]["accuracy"], their[seed]["accuracy"]) for seed in own if seed in their]
    return pairs
