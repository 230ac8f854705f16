"""The two networks of the ranking benchmark, their data and the widths that are ranked."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

import cafenet
from benchmarks.common.images import shrunk
from benchmarks.common.places import CIFAR
from cafenet.data import ImageData, load_data
from cafenet.models.plain_cnn import plain_cnn
from cafenet.searching.budget import parse_budget
from cafenet.searching.feasible import Feasible
from cafenet.space.bins import Bins, IntArray, flops_sensitive_bins

SIZE = 16
NUM_TRAIN, NUM_VALIDATION = 10_000, 4_000
BAND = (0.35, 0.65)
NUM_WIDTHS = 100
BETA = 0.5
"""Fine enough for r = 2 in every group."""


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        same = before == after and stride == 1
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Run two convolutions beside a shortcut, as in ResNet."""
        inner = relu(self.bn1(self.conv1(inputs)))
        return relu(self.bn2(self.conv2(inner)) + self.shortcut(inputs))


def plain() -> nn.Module:
    """Five convolutions, 1.4M FLOPs at 16x16."""
    return plain_cnn(in_channels=3)


def residual() -> nn.Module:
    """A stem and four blocks, 1.1M FLOPs at 16x16."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Block(16, 16, 1),
        Block(16, 32, 2),
        Block(32, 32, 1),
        Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


@dataclass(frozen=True, eq=False)
class Task:
    """A network, its space and bins, its data, and the widths that are ranked."""

    name: str
    build: Callable[[], nn.Module]
    space: cafenet.WidthSpace
    bins: Bins
    bin_counts: IntArray
    """Bins per group, one row a width vector."""
    train: ImageData
    validation: ImageData
    test: ImageData

    def widths(self, number: int) -> dict[str, int]:
        """Channels per group of one of them."""
        names = [group.name for group in self.space.groups]
        return dict(zip(names, self.bins.widths(self.bin_counts[number]).tolist(), strict=True))


BUILDERS: dict[str, Callable[[], nn.Module]] = {"plain": plain, "residual": residual}


@cache
def task(name: str) -> Task:
    """One of the networks of this benchmark."""
    return task_of(name, BUILDERS[name])


def task_of(name: str, build: Callable[[], nn.Module]) -> Task:
    """Everything but the weights; the widths are drawn with a fixed seed, spread over the band."""
    torch.manual_seed(0)
    space = cafenet.trace(build(), torch.zeros(1, 3, SIZE, SIZE))
    bins = flops_sensitive_bins(space, BETA)
    return Task(name, build, space, bins, _drawn_widths(space, bins), *cifar_parts())


@cache
def cifar_parts() -> tuple[ImageData, ImageData, ImageData]:
    """Training, validation and test images of CIFAR-10 at 16x16."""
    data = load_data(f"npz:{CIFAR}")
    order = np.random.default_rng(0).permutation(len(data.train))
    train, validation = order[:NUM_TRAIN], order[NUM_TRAIN : NUM_TRAIN + NUM_VALIDATION]
    parts = (data.train.subset(train), data.train.subset(validation), data.test)
    first, second, third = (shrunk(part, SIZE) for part in parts)
    return first, second, third


def _drawn_widths(space: cafenet.WidthSpace, bins: Bins) -> IntArray:
    rng = np.random.default_rng(0)
    rows: dict[tuple[int, ...], None] = {}
    steps = np.linspace(*BAND, 11)
    costs = {"flops": space.flops, "params": space.params}
    while len(rows) < NUM_WIDTHS:
        for low, high in pairwise(steps):
            budget = parse_budget(f"{100 * high:.4f}%", space)
            feasible = Feasible(bins, costs, budget, (low / high, 1.0))
            rows |= dict.fromkeys(map(tuple, feasible.sample(NUM_WIDTHS // 10, rng).tolist()))
    return np.array(list(rows)[:NUM_WIDTHS], dtype=np.int64)
