"""Kendall's tau and the regret of the pick, per supernet; differences between ways, paired by seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from cafenet.bins import IntArray
from cafenet.pairing import PairedDifference, compare_paired
from cafenet.scoring import FloatArray

METRICS = (
    "tau by accuracy",
    "tau by loss",
    "tau at equal FLOPs by accuracy",
    "tau at equal FLOPs by loss",
    "regret by accuracy",
    "regret by loss",
    "regret at equal FLOPs by accuracy",
    "regret at equal FLOPs by loss",
)
PRIMARY = "tau by accuracy"
"""Named before the first supernet was trained."""
_EQUAL_FLOPS = 0.03
"""Widths are compared at equal FLOPs when these differ by no more than this share of the full network's."""


@dataclass(frozen=True)
class Truth:
    """Labels of the widths: mean test accuracy over seeds, in percent."""

    numbers: IntArray
    mean: FloatArray
    flops: FloatArray
    """Shares of the full network's."""
    reliability: float
    """Kendall's tau between the labels of two seeds, averaged over pairs of seeds."""
    num_seeds: int


def truth(labels: dict[str, dict[str, float]], flops: FloatArray) -> Truth | None:
    """The widths that are labelled with every seed so far; None where there are too few. `flops`: shares of all."""
    seeds = sorted({seed for row in labels.values() for seed in row})
    for used in range(len(seeds), 0, -1):
        numbers = [n for n in range(len(flops)) if all(s in labels.get(str(n), {}) for s in seeds[:used])]
        if len(numbers) >= 10:
            table = np.array([[labels[str(number)][seed] for seed in seeds[:used]] for number in numbers])
            pairs = [
                kendalltau(table[:, first], table[:, second]).statistic
                for first in range(used)
                for second in range(first)
            ]
            reliability = float(np.mean(pairs)) if pairs else float("nan")
            return Truth(np.array(numbers), table.mean(axis=1), flops[numbers], reliability, used)
    return None


def measures(row: dict[str, Any], known: Truth) -> dict[str, float]:
    """Of one supernet: how it ranks, and how far its pick is from the best width."""
    accuracy, loss = (np.array(row[name])[known.numbers] for name in ("accuracy", "loss"))
    return {
        "tau by accuracy": float(kendalltau(accuracy, known.mean).statistic),
        "tau by loss": float(kendalltau(-loss, known.mean).statistic),
        "tau at equal FLOPs by accuracy": tau_at_equal_flops(accuracy, known),
        "tau at equal FLOPs by loss": tau_at_equal_flops(-loss, known),
        "regret by accuracy": regret(accuracy, known.mean),
        "regret by loss": regret(-loss, known.mean),
        "regret at equal FLOPs by accuracy": regret_at_equal_flops(accuracy, known),
        "regret at equal FLOPs by loss": regret_at_equal_flops(-loss, known),
    }


def tau_at_equal_flops(scores: FloatArray, known: Truth) -> float:
    """Kendall's tau over the pairs of widths that cost about the same: what a search under one budget needs."""
    first, second = np.triu_indices(len(scores), 1)
    near = abs(known.flops[first] - known.flops[second]) <= _EQUAL_FLOPS
    first, second = first[near], second[near]
    return float(np.mean(np.sign(scores[first] - scores[second]) * np.sign(known.mean[first] - known.mean[second])))


def regret(scores: FloatArray, labels: FloatArray) -> float:
    """The best label minus that of the pick, which is the mean over all widths of the highest score."""
    return float(labels.max() - labels[scores == scores.max()].mean())


def regret_at_equal_flops(scores: FloatArray, known: Truth) -> float:
    """The mean regret of a pick among the widths that cost about as much as one of them, over all of them."""
    near = abs(known.flops[:, None] - known.flops) <= _EQUAL_FLOPS
    return float(np.mean([regret(scores[row], known.mean[row]) for row in near]))


def difference(rows: dict[str, dict[str, Any]], first: str, second: str, known: Truth, metric: str) -> Any:
    """first - second over the seeds that both have; None where they share none."""
    seeds = sorted(set(rows.get(first, {})) & set(rows.get(second, {})))
    if not seeds:
        return None
    values: Sequence[Sequence[float]] = [
        [measures(rows[name][seed], known)[metric] for seed in seeds] for name in (first, second)
    ]
    found: PairedDifference = compare_paired(*values)
    return found
