"""Bins: the smallest runs of neighbouring channels that are added or dropped together (paper, eq6 and eq7).

Smallest example: a group of 10 channels with bins of 3 has floor(10 / 3) = 3 bins of 4, 3 and 3 channels: the first one
takes the rest of the division and is always kept, so widths are 4, 7 and 10, and every choice of c bins that holds the
first has the same number of channels.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cafenet.errors import BinError
from cafenet.space.width_space import WidthGroup, WidthSpace

IntArray = npt.NDArray[np.int64]

_LEVELS = np.linspace(1.0, -6.0, 128)
"""Logarithms of a common share; one above 0 makes most groups full."""


@dataclass(frozen=True)
class GroupBins:
    """The bins of one group: `first` channels in bin 1, `size` in each of the others."""

    name: str
    channels: int
    first: int
    size: int

    @property
    def num_bins(self) -> int:
        return 1 + (self.channels - self.first) // self.size

    def width(self, num_taken: int) -> int:
        """Channels of any assignment that takes that many bins, the first among them."""
        return self.first + (num_taken - 1) * self.size

    def num_taken(self, width: int) -> int:
        """How many bins make this width; widths that are not on an edge are an error."""
        taken, rest = divmod(width - self.first, self.size)
        if rest or not 0 <= taken < self.num_bins:
            raise BinError(
                f"widths of {self.name!r} must be {self.first} + a multiple of {self.size} up to {self.channels}, "
                f"but got {width}"
            )
        return taken + 1


@dataclass(frozen=True)
class Bins:
    """The bins of every group of a width space, in group order."""

    groups: tuple[GroupBins, ...]

    @property
    def num_bins(self) -> IntArray:
        """Bins per group."""
        return np.array([group.num_bins for group in self.groups], dtype=np.int64)

    @property
    def search_space_size(self) -> int:
        """The number of width vectors: the product of the numbers of bins."""
        return math.prod(group.num_bins for group in self.groups)

    def widths(self, taken: IntArray) -> IntArray:
        """Width vectors of numbers of bins; any leading shape, groups last."""
        first = np.array([group.first for group in self.groups], dtype=np.int64)
        size = np.array([group.size for group in self.groups], dtype=np.int64)
        return first + (np.asarray(taken, dtype=np.int64) - 1) * size

    def num_taken(self, widths: IntArray | list[int]) -> IntArray:
        """Numbers of bins of one width vector."""
        taken = [group.num_taken(int(width)) for group, width in zip(self.groups, widths, strict=True)]
        return np.array(taken, dtype=np.int64)


def flops_sensitive_bins(space: WidthSpace, beta: float = 1.0, *, min_width: int | float = 1, divisor: int = 1) -> Bins:
    """Bins of about equal FLOPs: beta channels where one channel costs most, more where it costs less (eq7).

    min_width: the smallest width, in channels (int) or as a share of the group (float); it joins the first bin.
    divisor: bin sizes are multiples of it, so edges lie on multiples of it (counted down from the full width).
    """
    if not beta > 0 or not math.isfinite(beta):
        raise BinError(f"beta must be a positive number, but got {beta}")
    _check_options(min_width, divisor)
    largest = max(group.sensitivity for group in space.groups)
    return Bins(
        tuple(
            _group_bins(group, beta * largest / max(group.sensitivity, 1e-9), min_width, divisor)
            for group in space.groups
        )
    )


def uniform_bins(space: WidthSpace, num_groups: int, *, min_width: int | float = 1, divisor: int = 1) -> Bins:
    """The baseline of the paper's ablation: every group cut into K parts, whatever its channels cost."""
    if num_groups < 1:
        raise BinError(f"uniform bins need at least one part a group, but got {num_groups}")
    _check_options(min_width, divisor)
    groups = []
    for group in space.groups:
        unit = _unit(group, divisor)
        size = max(1, group.channels // (unit * num_groups)) * unit
        groups.append(_cut(group, size, min(num_groups, group.channels // size), min_width))
    return Bins(tuple(groups))


def _check_options(min_width: int | float, divisor: int) -> None:
    if isinstance(min_width, bool) or min_width <= 0 or (isinstance(min_width, float) and min_width > 1):
        raise BinError(f"min_width must be an int >= 1 (channels) or a float in (0, 1] (share), but got {min_width}")
    if divisor < 1:
        raise BinError(f"divisor must be at least 1, but got {divisor}")


def _unit(group: WidthGroup, divisor: int) -> int:
    """What bin sizes are multiples of; a group smaller than the divisor is one bin."""
    unit = math.lcm(group.divisor, divisor)
    return unit if unit <= group.channels else group.channels


def _group_bins(group: WidthGroup, size: float, min_width: int | float, divisor: int) -> GroupBins:
    """Bins of about `size` channels in whole units; a group smaller than one bin has one bin and does not vary."""
    unit = _unit(group, divisor)
    rounded = min(max(1, round(size / unit)) * unit, group.channels)
    return _cut(group, rounded, group.channels // rounded, min_width)


def _cut(group: WidthGroup, size: int, num_bins: int, min_width: int | float) -> GroupBins:
    """That many bins, the first with what the others leave; more of them join it until it has the smallest width."""
    asked = math.ceil(min_width * group.channels) if isinstance(min_width, float) else min_width
    smallest = max(asked, group.min_width)
    first = group.channels - (num_bins - 1) * size
    if smallest > first:
        first = min(group.channels, first + math.ceil((smallest - first) / size) * size)
    return GroupBins(group.name, group.channels, first, size)


def balanced_rows(num_bins: IntArray, deviations: npt.NDArray[np.float64]) -> IntArray:
    """Vectors of bin counts from nearly full to the smallest, the groups' shares one share times exp(deviations)."""
    shares = np.exp(_LEVELS[:, None] + deviations)
    rows: IntArray = np.clip(np.rint(shares * num_bins), 1, num_bins).astype(np.int64)
    return rows
