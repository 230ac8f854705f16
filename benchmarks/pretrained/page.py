"""docs/pretrained.md, made of the losses of every seed."""

from statistics import mean, stdev
from typing import Any

from cafenet.common.statistics import compare_paired

ENDS = ("pretrained, sorted", "pretrained")


def markdown(results: dict[str, Any]) -> str:
    """The whole page."""
    rows: dict[str, list[float]] = results["rows"]
    num_seeds, num_steps = max(map(len, rows.values())), results["pretrain_steps"]
    lines = [
        "# What an importance-sorted start is worth",
        "",
        "Made by `make bench-pretrained` (`python -m benchmarks.pretrained`, which says how): a VGG-19 at a quarter of",
        f"its width on CIFAR-10 at 16x16, pretrained for {num_steps} steps of 128 images. Mean loss of 20 random width",
        f"vectors, their leading channels, on 512 training images; {num_seeds} seeds with their standard deviation.",
        "",
        "| start | loss | spread |",
        "| --- | ---: | ---: |",
    ]
    for name, values in rows.items():
        lines.append(f"| {name} | {mean(values):.3f} | {stdev(values) if len(values) > 1 else 0:.3f} |")
    difference = compare_paired(
        *(next(row for name, row in rows.items() if name.startswith("after") and name.endswith(end)) for end in ENDS)
    )
    lines += ["", f"After the supernet's training, sorted minus unsorted, paired by seed: {difference}."]
    return "\n".join(lines) + "\n"
