"""The public table of 16,384 trained widths as long labels, and how a ranking is judged by it.

Primary measures, written down before the first training: Kendall's tau between a ranking and the mean of the three
trainings, over all widths and over those within 2.5% of half the FLOPs; and the label of the ranking's pick within 75,
50 and 25% of the FLOPs, as a distance from the best label there.
"""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from benchmarks.common.places import DATA
from cafenet.scoring.scorer import FloatArray
from cafenet.space.bins import IntArray

MOBILENET = DATA / "channel-bench" / "mobilenet.json.gz"
RESNET = DATA / "channel-bench" / "resnet.json.gz"
PERCENTS = (75, 50, 25)
_NEAR_HALF = 0.025
_TIE = 1e-9
"""Scores so close are equal; then the regret is the mean over the widths that have them."""


@dataclass(frozen=True, eq=False)
class Labels:
    """Every width of the table, in the order of its keys."""

    quarters: IntArray
    """(widths, 7): quarters of the full channels."""
    accuracies: FloatArray
    """(widths, 3): percent, of the three trainings."""
    flops_share: FloatArray
    params: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Mean accuracy over the three trainings."""
        mean: FloatArray = self.accuracies.mean(axis=1)
        return mean

    @property
    def logarithms(self) -> FloatArray:
        """Logarithms of the groups' shares."""
        logarithms: FloatArray = np.log(self.quarters / 4)
        return logarithms


def read_labels(path: Path = MOBILENET) -> Labels:
    """Read the table."""
    with gzip.open(path) as file:
        rows = json.load(file)
    keys = sorted(rows)
    flops = np.array([rows[key]["flops"] for key in keys], dtype=np.float64)
    return Labels(
        np.array([[int(digit) for digit in key] for key in keys]),
        np.array([rows[key]["acc"] for key in keys]),
        flops / flops.max(),
        np.array([rows[key]["params"] for key in keys], dtype=np.float64),
    )


def judge(scores: FloatArray, labels: Labels) -> dict[str, float]:
    """Judge one score per width: `tau`, `tau at half`, and `regret N%` in points for every budget."""
    near_half = abs(labels.flops_share - 0.5) <= _NEAR_HALF * 0.5
    mean = labels.mean
    found = {
        "tau": float(kendalltau(scores, mean).statistic),
        "tau at half": float(kendalltau(scores[near_half], mean[near_half]).statistic),
    }
    for percent in PERCENTS:
        fits = labels.flops_share <= percent / 100
        is_best = scores[fits] >= scores[fits].max() - _TIE
        found[f"regret {percent}%"] = float(mean[fits].max() - mean[fits][is_best].mean())
    return found


def near_uniform_regret(labels: Labels, percent: int) -> float:
    """Points between the best label within a budget and the mean of the widths that are closest to uniform there.

    Closest are, among the widths that use at least 90% of the budget, those whose quarters differ by one at most.
    """
    share = labels.flops_share / (percent / 100)
    flat = np.ptp(labels.quarters, axis=1) <= 1
    uniform = (share <= 1) & (share >= 0.9) & flat
    return float(labels.mean[share <= 1].max() - labels.mean[uniform].mean())
