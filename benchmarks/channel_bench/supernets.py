"""Supernets of the tables' networks, trained and scored as those of the ranking benchmark, and judged by the tables.

The table's ResNet is too large to train here. A supernet of the same network with a quarter of all channels is: what
its groups are worth says how the table's widths rank, because a worth belongs to a logarithm of a share. The rule for
it, written down before its first run: the default supernet (fixed, trust 1) is judged by tau over all widths and at
half, beside the sum of logarithms, which no supernet has to be trained for; three seeds.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.channel_bench.network import build_network, narrow_resnet
from benchmarks.channel_bench.table import Labels, judge
from benchmarks.common.images import shrunk
from benchmarks.common.places import CIFAR
from benchmarks.common.results_file import Results
from benchmarks.ranking.networks import NUM_TRAIN, NUM_VALIDATION, SIZE, Task, task_of
from benchmarks.ranking.supernets import rank
from cafenet.data import load_data
from cafenet.scoring.scorer import FloatArray
from cafenet.searching.algorithms.trend import drawn_together, fit_worths

NAME = "channel-bench"
LARGER = f"{NAME}, 16,000 images"
RESNET = "channel-bench resnet"
PARTS = {f"supernets {NAME}": "", f"supernets {LARGER}": ", 16,000 images"}
"""Parts of the results, with what the page adds to the name of a way."""
TRUSTS = (1.0, 0.5, 0.25, 0.0)
"""Shares of the differences between groups that are believed (`Trend.trust`)."""


@cache
def table_task() -> Task:
    """The network with 100 widths between 35% and 65% of its FLOPs, at 16x16, and 10,000 training images.

    Its groups come in the order of the table's keys.
    """
    return task_of(NAME, build_network)


@cache
def larger_task() -> Task:
    """The table's task with all images for the training that are not validation images, 16,000."""
    data = load_data(f"npz:{CIFAR}").train
    order = np.random.default_rng(0).permutation(len(data))
    numbers = np.concatenate([order[:NUM_TRAIN], order[NUM_TRAIN + NUM_VALIDATION :]])
    return replace(table_task(), name=LARGER, train=shrunk(data.subset(numbers), SIZE))


@cache
def resnet_task() -> Task:
    """The ResNet with a quarter of all channels, at 16x16, and 10,000 training images."""
    return task_of(RESNET, narrow_resnet)


def train_supernets(
    results: Results, task: Task, ways: Sequence[str], seeds: Sequence[int], cache_directory: Path
) -> None:
    """Train and score the supernets that are missing."""
    rank(results, task, ways, seeds, cache_directory)


def worths_of(row: dict[str, Any], work: Task) -> FloatArray:
    """The worth of every group by the scores of one supernet, as the default search fits it."""
    return fit_worths(np.log(work.bins.widths(work.bin_counts)), np.array(row["accuracy"]))


def judged(worths: FloatArray, trust: float, labels: Labels) -> dict[str, float]:
    """Kendall's tau with which a line of these worths, drawn together, ranks the table."""
    return judge(labels.logarithms @ drawn_together(worths, trust), labels)
