"""Supernets of the table's MobileNet, trained and scored as those of the ranking benchmark, and judged by the table."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.channel_bench.network import build_network
from benchmarks.channel_bench.table import Labels, judge
from benchmarks.common.results_file import Results
from benchmarks.ranking.networks import Task, task_of
from benchmarks.ranking.supernets import rank
from cafenet.scoring.scorer import FloatArray
from cafenet.searching.algorithms.trend import drawn_together, fit_worths

NAME = "channel-bench"
PART = f"supernets {NAME}"
TRUSTS = (1.0, 0.5, 0.25, 0.0)
"""Shares of the differences between groups that are believed (`Trend.trust`)."""


@cache
def table_task() -> Task:
    """The network with 100 widths between 35% and 65% of its FLOPs, at 16x16, and 10,000 training images.

    Its groups come in the order of the table's keys.
    """
    return task_of(NAME, build_network)


def train_supernets(results: Results, ways: Sequence[str], seeds: Sequence[int], cache_directory: Path) -> None:
    """Train and score the supernets that are missing."""
    rank(results, table_task(), ways, seeds, cache_directory)


def worths_of(row: dict[str, Any]) -> FloatArray:
    """The worth of every group by the scores of one supernet, as the default search fits it."""
    work = table_task()
    return fit_worths(np.log(work.bins.widths(work.bin_counts)), np.array(row["accuracy"]))


def judged(worths: FloatArray, trust: float, labels: Labels) -> dict[str, float]:
    """Kendall's tau with which a line of these worths, drawn together, ranks the table."""
    return judge(labels.logarithms @ drawn_together(worths, trust), labels)
