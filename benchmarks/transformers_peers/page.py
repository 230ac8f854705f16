"""docs/transformers_peers.md, made of what was measured."""

from typing import Any

import numpy as np

from benchmarks.common.intervals import cell_of
from benchmarks.common.results_file import Results
from benchmarks.transformers_peers.methods import METHODS
from benchmarks.transformers_peers.networks import DEPTH, FEATURES, HEADS, HIDDEN, LENGTH
from benchmarks.transformers_peers.tasks import FINETUNE_EPOCHS, NUM_WIDTHS, ORIGINAL_EPOCHS, SUPERNET_EPOCHS, TASKS
from cafenet.common.statistics import PairedDifference, compare_paired

OURS = "CafeNet"
UNITS = {"ViT": "accuracy on 5,000 test images, %", "GPT": "minus nats per character of 2,000 test texts"}
HOW = f"""# Transformers at half of their FLOPs

    python -m benchmarks.transformers_peers

continues where it stopped; its docstring has the rule that was written before the first run.

- Both networks have {DEPTH} blocks, {FEATURES} features, {HEADS} heads and {HIDDEN} units in each MLP. The ViT sorts
  images of CIFAR-10 at 16x16 (10,000 to train on, 4,000 to choose by). The GPT continues texts of {LENGTH} characters
  of the King James Version (4,000 to train on, 1,000 to choose by).
- The whole network is trained for {ORIGINAL_EPOCHS} epochs. CafeNet trains a supernet from it for {SUPERNET_EPOCHS}
  epochs, scores {NUM_WIDTHS} widths, and fine-tunes what it finds for {FINETUNE_EPOCHS} epochs. The others are
  fine-tuned for {FINETUNE_EPOCHS} epochs, or for {SUPERNET_EPOCHS + FINETUNE_EPOCHS} where the row says *as long in
  all*, with the same optimiser.
- Torch-Pruning has its group magnitudes and the smallest ratio in hundredths that meets the budget; `num_heads` is
  given as its examples for vision transformers do, once with sizes of heads (its default), once with whole heads.
- Higher is better in every column. Differences are paired by seed, with 95% intervals, bold where they do not hold
  zero."""


def markdown(results: Results) -> str:
    """The whole page."""
    versions = ", ".join(f"{name} {number}" for name, number in results.versions.items())
    lines = [HOW, "", f"Measured with {versions}."]
    for task in TASKS:
        lines += _table(task, results.rows(task))
    return "\n".join(lines) + "\n"


def _table(task: str, rows: dict[str, Any]) -> list[str]:
    if not rows:
        return []
    full = {seed: row["flops"] for seed, row in rows.get("Original", {}).items()}
    lines = ["", f"## {task}", "", f"Score: {UNITS[task]}.", ""]
    lines += [f"| method | seeds | FLOPs | score | {OURS} minus it | CPU seconds |", "| --- |" + " ---: |" * 5]
    for name in ("Original", *METHODS):
        found = rows.get(name, {})
        if found:
            share = np.mean([row["flops"] / full[seed] for seed, row in found.items() if seed in full])
            cells = [name, str(len(found)), f"{share:.1%}", _spread(found), cell_of(difference(rows, name), 3)]
            lines.append(f"| {' | '.join(cells)} | {np.median([row['seconds'] for row in found.values()]):.0f} |")
    return lines + _verdict(rows)


def difference(rows: dict[str, Any], name: str) -> PairedDifference | None:
    """CafeNet minus a method over the seeds that both have; None for CafeNet itself, and before there are any."""
    ours, other = rows.get(OURS, {}), rows.get(name, {})
    seeds = sorted(set(ours) & set(other))
    if name == OURS or not seeds:
        return None
    return compare_paired([ours[seed]["score"] for seed in seeds], [other[seed]["score"] for seed in seeds])


def _verdict(rows: dict[str, Any]) -> list[str]:
    """Say by the rule whom CafeNet is ahead of."""
    said: dict[str, list[str]] = {"ahead of": [], "no different from": [], "behind": []}
    for name in METHODS:
        found = difference(rows, name)
        if found is not None and found.num_pairs > 1:
            place = "no different from" if not found.is_clear else "ahead of" if found.mean > 0 else "behind"
            said[place].append(f"*{name}*")
    parts = [f"{place} {' and '.join(names)}" for place, names in said.items() if names]
    return ["", f"By the rule, {OURS} is {'; '.join(parts)}."] if parts else []


def _spread(found: dict[str, Any]) -> str:
    scores = [row["score"] for row in found.values()]
    return f"{np.mean(scores):.3f}" + (f" ± {np.std(scores, ddof=1):.3f}" if len(scores) > 1 else "")
