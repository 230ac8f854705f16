"""Kendall's tau and the regret of the pick, per supernet; differences between ways, paired by seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from scipy.stats import kendalltau

from cafenet.common.statistics import PairedDifference, compare_paired
from cafenet.scoring.scorer import FloatArray
from cafenet.searching.algorithms.trend import fit_worths
from cafenet.space.bins import IntArray

SCORES = ("accuracy", "loss", "trend of accuracies", "trend of losses")
"""Values that widths are ranked by; the default search settles on the trend of the accuracies."""
KINDS = ("tau", "tau at equal FLOPs", "regret", "regret at equal FLOPs")
PRIMARY = "tau by accuracy"
"""Named before the first supernet was trained."""
Measured: TypeAlias = dict[str, dict[str, dict[str, float]]]
"""The value of every measure, by way to train a supernet and by seed."""
_FEWEST = 10
"""Widths that say anything."""
_EQUAL_FLOPS = 0.03
"""Widths are compared at equal FLOPs when these differ by no more than this share of the full network's."""


@dataclass(frozen=True)
class Truth:
    """Labels of the widths: mean test accuracy over seeds, in percent."""

    numbers: IntArray
    mean: FloatArray
    flops: FloatArray
    """FLOPs as shares of the full network's."""
    logarithms: FloatArray
    """Logarithms of the groups' shares."""
    reliability: float
    """Kendall's tau between the labels of two seeds, averaged over pairs of seeds."""
    num_seeds: int


def truth(labels: dict[str, dict[str, float]], flops: FloatArray, logarithms: FloatArray) -> Truth | None:
    """Average the labels of all widths over the seeds that all of them have; None if there are too few.

    flops, logarithms: of every width, as in `Truth`. The reliability takes in a seed that is not complete, too.
    """
    seeds = sorted({seed for row in labels.values() for seed in row})
    numbers = [number for number in range(len(flops)) if seeds and seeds[0] in labels.get(str(number), {})]
    if len(numbers) < _FEWEST:
        return None
    whole = [seed for seed in seeds if all(seed in labels[str(number)] for number in numbers)]
    table = np.array([[labels[str(number)][seed] for seed in whole] for number in numbers])
    reliability = _reliability(labels, seeds)
    return Truth(np.array(numbers), table.mean(axis=1), flops[numbers], logarithms[numbers], reliability, len(whole))


def _reliability(labels: dict[str, dict[str, float]], seeds: Sequence[str]) -> float:
    """The mean tau between two seeds' labels, over pairs of seeds that share enough widths; NaN without such a pair."""
    found = []
    for first, second in combinations(seeds, 2):
        pairs = [(row[first], row[second]) for row in labels.values() if first in row and second in row]
        if len(pairs) >= _FEWEST:
            found.append(float(kendalltau(*zip(*pairs, strict=True)).statistic))
    return float(np.mean(found)) if found else float("nan")


def measures(row: dict[str, Any], known: Truth) -> dict[str, float]:
    """Measure one supernet: its ranking, and the distance of its pick from the best width."""
    accuracy, loss = (np.array(row[name])[known.numbers] for name in ("accuracy", "loss"))
    trends = [known.logarithms @ fit_worths(known.logarithms, each) for each in (accuracy, -loss)]
    found = {}
    for name, scores in zip(SCORES, (accuracy, -loss, *trends), strict=True):
        found |= {f"{kind} by {name}": value for kind, value in measures_of(scores, known).items()}
    return found


def measures_of(scores: FloatArray, known: Truth) -> dict[str, float]:
    """Every kind of measure for one way to score the widths."""
    values = (
        float(kendalltau(scores, known.mean).statistic),
        tau_at_equal_flops(scores, known),
        regret(scores, known.mean),
        regret_at_equal_flops(scores, known),
    )
    return dict(zip(KINDS, values, strict=True))


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


def difference(measured: Measured, first: str, second: str, metric: str) -> PairedDifference | None:
    """first - second over the seeds that both have; None where they share none."""
    seeds = sorted(set(measured.get(first, {})) & set(measured.get(second, {})))
    if not seeds:
        return None
    return compare_paired(*([measured[name][seed][metric] for seed in seeds] for name in (first, second)))
