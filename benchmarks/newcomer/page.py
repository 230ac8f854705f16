"""docs/newcomer.md, made of the results."""

from statistics import mean, stdev
from typing import Any

from benchmarks.common.intervals import cell_of
from benchmarks.common.results_file import Results
from benchmarks.newcomer.cells import BEFORE, LONG, OURS, PEER, PERCENT, UNIFORM
from benchmarks.newcomer.networks import NETWORKS
from cafenet.common.statistics import compare_paired

ROWS = (BEFORE, OURS, UNIFORM, PEER, UNIFORM + LONG, PEER + LONG)
HEAD = f"""# What a newcomer gets

Made by `python -m benchmarks.newcomer` (`make bench-newcomer`), whose first lines hold the rule, written down before
the runs. Two networks with torchvision's blocks, a ResNet and a MobileNetV3 for small images, are trained for 20 epochs
on 10,000 images of CIFAR-10 at 16x16. Then this, and nothing else:

```
result = cafenet.search(model, train, val, budget="{PERCENT}%", test_data=test)
```

*Uniform* is the one that the search itself makes: one factor on the channels of all layers, the most important
channels, the same fine-tuning. *Torch-Pruning* prunes the same trained network by global group norms to the same FLOPs
and has the same fine-tuning. *As long in all*: fine-tuned for as many epochs as CafeNet's supernet and slim model had
together.
"""
NOTHING = "No cell has been measured with the present defaults yet."


def markdown(results: Results) -> str:
    """Return the whole page."""
    networks = [part for part in results.parts() if part in NETWORKS and results.rows(part)]
    lines = [HEAD, *(_compared(results, networks) if networks else [NOTHING]), *_earlier(results)]
    return "\n".join([*lines, *_printed(results, networks)]) + "\n"


def _compared(results: Results, networks: list[str]) -> list[str]:
    """Return accuracies, and what CafeNet is ahead of each other one."""
    lines = ["Test accuracy in percent, mean and standard deviation over the seeds.", ""]
    lines += [*_table(results, networks), "", f"| {OURS} minus | difference in points |", "| --- | ---: |"]
    for name in ROWS[2:]:
        pairs = _pairs(results, networks, name)
        if pairs:
            lines.append(f"| {name} | {cell_of(compare_paired(*zip(*pairs, strict=True)))} |")
    num_pairs = len(_pairs(results, networks, UNIFORM))
    return [
        *lines,
        "",
        f"Paired by network and seed, {num_pairs} pairs, with 95% intervals; bold where they exclude zero.",
    ]


def _earlier(results: Results) -> list[str]:
    """Return what was measured with earlier defaults."""
    lines = []
    for part in results.parts():
        if part not in NETWORKS:
            lines += ["", f"With earlier defaults ({part}):", ""]
            lines += _table(results, [part])
    return lines


def _table(results: Results, networks: list[str]) -> list[str]:
    """Return accuracies and FLOPs, one row a method."""
    columns = [f"{network} | FLOPs" for network in networks]
    lines = [f"| model | {' | '.join(columns)} |", "| --- |" + " ---: | ---: |" * len(networks)]
    for name in ROWS:
        cells = [_cell(list(results.rows(network).get(name, {}).values())) for network in networks]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _cell(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return " | "
    values = [row["accuracy"] for row in rows]
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{spread} | {mean(row['flops'] for row in rows) / 1e6:.2f}M"


def _pairs(results: Results, networks: list[str], name: str) -> list[tuple[float, float]]:
    """Return the accuracies of CafeNet and of another, by network and seed."""
    pairs = []
    for network in networks:
        own, other = (results.rows(network).get(each, {}) for each in (OURS, name))
        pairs += [(own[seed]["accuracy"], other[seed]["accuracy"]) for seed in own if seed in other]
    return pairs


def _printed(results: Results, networks: list[str]) -> list[str]:
    """Return what `print(result)` said for the first network and seed."""
    rows = results.rows(networks[0]).get(OURS, {}) if networks else {}
    if not rows:
        return []
    first = min(rows)
    return ["", f"`print(result)` of {networks[0]}, seed {first}:", "", "```text", rows[first]["printed"], "```"]
