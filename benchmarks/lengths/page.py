"""docs/lengths.md, made of the results."""

from statistics import mean, stdev
from typing import Any

from benchmarks.common.intervals import cell_of
from benchmarks.common.results_file import Results
from cafenet.common.statistics import compare_paired

HEAD = """\
# Epochs of the supernet and of the slim model

Made by `python -m benchmarks.lengths`, whose first lines hold the rule, written down before the first run. Networks
come trained, the budget is a quarter of the FLOPs, and 20 epochs in all are divided between the supernet and the
fine-tuning of the slim model in different ways. Accuracy in percent on 6,000 images of CIFAR-10 at 16x16 that nothing
else uses, mean and standard deviation over the seeds. *Uniform beside* a row has the same fine-tuning as that row's
slim model. *Trust* is `Trend.trust`, the share of the fitted differences between groups that is believed.
"""


def markdown(results: Results) -> str:
    """Return the whole page."""
    networks = [part for part in results.parts() if results.rows(part)]
    names = list(dict.fromkeys(name for network in networks for name in results.rows(network)))
    lines = [HEAD, f"| model | {' | '.join(networks)} |", "| --- |" + " ---: |" * len(networks)]
    for name in names:
        lines.append(f"| {name} | {' | '.join(_cell(results.rows(each).get(name, {})) for each in networks)} |")
    ours = [name for name in names if name.startswith("CafeNet")]
    lines += ["", "| difference | points |", "| --- | ---: |"]
    for place, name in enumerate(ours):
        others = [other for other in names if other.startswith("Uniform,") or other.endswith(f"beside {name}")]
        for other in [*others, *ours[:place]]:
            pairs = _pairs(results, networks, name, other)
            if pairs:
                found = cell_of(compare_paired(*zip(*pairs, strict=True)))
                lines.append(f"| {name} minus {other} | {found} ({len(pairs)} pairs) |")
    return "\n".join(lines) + "\n"


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
