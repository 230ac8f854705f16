"""Bins: the smallest runs of neighbouring channels that are added or dropped together (paper, eq6 and eq7).

Smallest example: a group of 10 channels with bins of size 3 has floor(10 / 3) = 3 bins of 4, 3 and 3 channels. The
first bin takes the remainder of the division and is always kept, so the widths are 4, 7 and 10. Every choice of c bins
that includes the first has the same number of channels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from cafenet.common.options import Positive, PositiveInt, PositiveShare, check_arguments
from cafenet.errors import BinError
from cafenet.space.width_group import WidthGroup
from cafenet.space.width_space import TracedSpace, WidthSpace

IntArray = npt.NDArray[np.int64]

_LEVELS = np.linspace(1.0, -6.0, 128)
"""Logarithms of the share that all groups have in common. Levels above 0 make most groups full."""


@dataclass(frozen=True)
class GroupBins:
    """The bins of one group: `first` channels in bin 1, and `size` channels in each of the others."""

    name: str
    """Name of the group."""
    channels: int
    """Number of channels at full width."""
    first: int
    """Number of channels in the first bin, which is always kept."""
    size: int
    """Number of channels in every other bin."""

    @property
    def num_bins(self) -> int:
        """Number of bins, including the first."""
        return 1 + (self.channels - self.first) // self.size

    def width(self, bin_count: int) -> int:
        """Computes the width that a number of bins makes.

        Args:
            bin_count: Number of bins that are kept, including the first.

        Returns:
            The number of channels, which is the same for every choice of that many bins.
        """
        return self.first + (bin_count - 1) * self.size

    def bin_count(self, width: int) -> int:
        """Computes the number of bins that make a width.

        Args:
            width: A width that lies on an edge between bins.

        Returns:
            The number of bins that are kept, including the first.

        Raises:
            BinError: If the width lies inside a bin.
        """
        bin_counts, rest = divmod(width - self.first, self.size)
        if rest or not 0 <= bin_counts < self.num_bins:
            raise BinError(
                f"widths of {self.name!r} must be {self.first} + a multiple of {self.size} up to {self.channels}, "
                f"but got {width}"
            )
        return bin_counts + 1


@dataclass(frozen=True)
class Bins:
    """The bins of every group of a width space, in group order.

    Examples:
        >>> from cafenet.space.bins import Bins, GroupBins
        >>> bins = Bins((GroupBins("conv1", 10, first=4, size=3), GroupBins("conv2", 8, first=2, size=2)))
        >>> bins.num_bins.tolist(), bins.search_space_size
        ([3, 4], 12)
        >>> bins.widths([1, 4]).tolist()
        [4, 8]
        >>> bins.bin_counts([7, 2]).tolist()
        [2, 1]
    """

    groups: tuple[GroupBins, ...]
    """The bins of each group."""

    @property
    def num_bins(self) -> IntArray:
        """Number of bins of each group."""
        return np.array([group.num_bins for group in self.groups], dtype=np.int64)

    @property
    def search_space_size(self) -> int:
        """Number of width vectors: the product of the numbers of bins."""
        return math.prod(group.num_bins for group in self.groups)

    def widths(self, bin_counts: IntArray) -> IntArray:
        """Converts numbers of bins into widths.

        Args:
            bin_counts: Numbers of kept bins, with the groups in the last dimension and any leading dimensions.

        Returns:
            The widths, in an array of the same shape.
        """
        first = np.array([group.first for group in self.groups], dtype=np.int64)
        size = np.array([group.size for group in self.groups], dtype=np.int64)
        return first + (np.asarray(bin_counts, dtype=np.int64) - 1) * size

    def bin_counts(self, widths: IntArray | list[int]) -> IntArray:
        """Converts one width vector into numbers of bins.

        Args:
            widths: One width per group, in group order.

        Returns:
            The number of kept bins of each group.

        Raises:
            BinError: If a width lies inside a bin.
        """
        bin_counts = [group.bin_count(int(width)) for group, width in zip(self.groups, widths, strict=True)]
        return np.array(bin_counts, dtype=np.int64)


def flops_sensitive_bins(space: WidthSpace, beta: float = 1.0, *, min_width: int | float = 1, divisor: int = 1) -> Bins:
    """Cuts every group into bins that cost about the same number of FLOPs (paper, eq7).

    A bin has `beta` channels in the group whose channels are most expensive, and more channels in cheaper groups.

    Args:
        space: The width space.
        beta: Number of channels per bin in the most expensive group. It must be positive, and may be a fraction.
        min_width: Smallest width, as a number of channels (int) or as a share of the group (float). It becomes part of
            the first bin.
        divisor: Number of which all bin sizes are multiples, so that widths are multiples of it counted down from full
            width.

    Returns:
        The bins of every group.

    Raises:
        BinError: If `space` is not a width space, or if `beta`, `min_width` or `divisor` is out of range.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> from cafenet.space.bins import flops_sensitive_bins
        >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 10, 3), nn.ReLU(), nn.Conv2d(10, 4, 3))
        >>> space = cafenet.trace(model, torch.zeros(1, 3, 8, 8))
        >>> [(bins.first, bins.size) for bins in flops_sensitive_bins(space, beta=2).groups]
        [(2, 2), (2, 2)]
    """
    return cost_sensitive_bins(space, beta, ("flops",), min_width=min_width, divisor=divisor)


def cost_sensitive_bins(
    space: WidthSpace,
    beta: float = 1.0,
    costs: Sequence[Literal["flops", "params"]] = ("flops",),
    *,
    min_width: int | float = 1,
    divisor: int = 1,
) -> Bins:
    """Cuts every group into bins of about the same cost, as `flops_sensitive_bins` does for FLOPs.

    With several costs, a channel counts by the one that it has the larger share of, beside the most expensive channel:
    a channel with all of the FLOPs of that one and a tenth of its parameters is as expensive as it.

    Args:
        space: The width space.
        beta: Number of channels per bin in the most expensive group. It must be positive, and may be a fraction.
        costs: The costs that count: "flops", "params" or both.
        min_width: Smallest width, as a number of channels (int) or as a share of the group (float).
        divisor: Number of which all bin sizes are multiples.

    Returns:
        The bins of every group.

    Raises:
        BinError: If `space` is not a width space, or if `beta`, `min_width` or `divisor` is out of range.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> from cafenet.space.bins import cost_sensitive_bins
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, stride=2), nn.Conv2d(8, 8, 3))
        >>> space = cafenet.trace(model, torch.zeros(1, 3, 16, 16))
        >>> [bins.size for bins in cost_sensitive_bins(space, 1, ("flops",)).groups]
        [1, 2]
        >>> [bins.size for bins in cost_sensitive_bins(space, 1, ("params",)).groups]
        [1, 1]
    """
    check_arguments(BinError, space=(space, TracedSpace), beta=(beta, Positive))
    _check_options(min_width, divisor)
    relative = np.max([each / max(each.max(), 1e-9) for each in (_per_channel(space, cost) for cost in costs)], axis=0)
    return Bins(
        tuple(
            _group_bins(group, beta / max(share, 1e-12), min_width, divisor)
            for group, share in zip(space.groups, relative.tolist(), strict=True)
        )
    )


def _per_channel(space: WidthSpace, cost: str) -> npt.NDArray[np.float64]:
    """Computes what one channel of each group costs at full width."""
    if cost == "flops":
        return np.array([group.sensitivity for group in space.groups])
    return space.params_cost.gradient() / [group.divisor for group in space.groups]


def uniform_bins(space: WidthSpace, num_groups: int, *, min_width: int | float = 1, divisor: int = 1) -> Bins:
    """Cuts every group into the same number of bins, regardless of cost: the baseline of the paper's ablation.

    Args:
        space: The width space.
        num_groups: Number of bins per group. A group with fewer channels has fewer bins.
        min_width: Smallest width, as a number of channels (int) or as a share of the group (float). It becomes part of
            the first bin.
        divisor: Number of which all bin sizes are multiples, so that widths are multiples of it counted down from full
            width.

    Returns:
        The bins of every group.

    Raises:
        BinError: If `space` is not a width space, or if `num_groups`, `min_width` or `divisor` is out of range.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> from cafenet.space.bins import uniform_bins
        >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
        >>> space = cafenet.trace(model, torch.zeros(1, 3, 8, 8))
        >>> uniform_bins(space, 4).widths([[1], [2], [3], [4]]).ravel().tolist()
        [4, 8, 12, 16]
    """
    check_arguments(BinError, space=(space, TracedSpace), num_groups=(num_groups, PositiveInt))
    _check_options(min_width, divisor)
    groups = []
    for group in space.groups:
        unit = _unit(group, divisor)
        size = max(1, group.channels // (unit * num_groups)) * unit
        groups.append(_cut(group, size, min(num_groups, group.channels // size), min_width))
    return Bins(tuple(groups))


def _check_options(min_width: int | float, divisor: int) -> None:
    check_arguments(BinError, min_width=(min_width, PositiveInt | PositiveShare), divisor=(divisor, PositiveInt))


def _unit(group: WidthGroup, divisor: int) -> int:
    """Smallest bin size, of which all bin sizes are multiples; a group smaller than the divisor is one bin."""
    unit = math.lcm(group.divisor, divisor)
    return unit if unit <= group.channels else group.channels


def _group_bins(group: WidthGroup, size: float, min_width: int | float, divisor: int) -> GroupBins:
    """Cuts a group into bins of about `size` channels; a group smaller than one bin has a single bin and does not
    vary.
    """
    unit = _unit(group, divisor)
    rounded = min(max(1, round(size / unit)) * unit, group.channels)
    return _cut(group, rounded, group.channels // rounded, min_width)


def _cut(group: WidthGroup, size: int, num_bins: int, min_width: int | float) -> GroupBins:
    """Makes `num_bins` bins, of which the first takes the remainder; further bins join the first until it has the
    smallest width.
    """
    asked = math.ceil(min_width * group.channels) if isinstance(min_width, float) else min_width
    smallest = max(asked, group.min_width)
    first = group.channels - (num_bins - 1) * size
    if smallest > first:
        first = min(group.channels, first + math.ceil((smallest - first) / size) * size)
    return GroupBins(group.name, group.channels, first, size)


def balanced_rows(num_bins: IntArray, deviations: npt.NDArray[np.float64]) -> IntArray:
    """Builds vectors of bin counts from nearly full to the smallest, in which all groups keep about the same share.

    Args:
        num_bins: Number of bins of each group.
        deviations: Logarithm of the factor by which each group's share differs from the common share.

    Returns:
        One row per level of the common share, with the groups in the columns.
    """
    shares = np.exp(_LEVELS[:, None] + deviations)
    rows: IntArray = np.clip(np.rint(shares * num_bins), 1, num_bins).astype(np.int64)
    return rows
