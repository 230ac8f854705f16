"""Assignments: the bins that stand for a width (paper, "Locally free weight sharing").

Smallest example: r = 1 and a width of c = 5 of 8 bins. Bins 1 to 3 are the base; two of the zone 4, 5, 6 are free: {4,
5}, {4, 6} or {5, 6}. With r = 0 there is one assignment, the leftmost bins, which is the fixed sharing of slimmable
networks.
"""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch

from cafenet.common.options import Count, PositiveInt, check_options
from cafenet.errors import BinError
from cafenet.space.bins import Bins, IntArray
from cafenet.space.layout import Subnet
from cafenet.space.width_space import WidthSpace

Offsets = tuple[int, ...]
"""Offsets of the free bins from the width."""

_MOST_OFFSET_SETS = 2000


@lru_cache
def offset_sets(r: int) -> tuple[Offsets, ...]:
    """Return all ways to take r + 1 of the 2r + 1 bins of a zone.

    Args:
        r: Offset of the zone.

    Returns:
        The ways as offsets from the width, the leftmost first.
    """
    return tuple(itertools.combinations(range(-r, r + 1), r + 1))


@lru_cache(maxsize=65536)
def assigned_bins(bin_count: int, num_bins: int, r: int, offsets: Offsets) -> tuple[int, ...]:
    """Return the bins that stand for a width under one choice of offsets.

    At the edges, offsets outside the group are replaced by the nearest free bin inside (the lower of two), and surplus
    bins are dropped from the right, so that every assignment has `bin_count` bins.

    Args:
        bin_count: Width in bins.
        num_bins: Number of bins of the group.
        r: Offset of the zone.
        offsets: One of `offset_sets(r)`.

    Returns:
        The numbers of the bins, counted from 1.
    """
    base = max(bin_count - r - 1, 1)
    wanted = [bin_count + offset for offset in offsets]
    chosen = set(range(1, base + 1)) | {number for number in wanted if 1 <= number <= num_bins}
    for number in wanted:
        if not 1 <= number <= num_bins:
            free = [other for other in range(1, num_bins + 1) if other not in chosen]
            if free:
                chosen.add(min(free, key=lambda other: (abs(other - number), other)))
    return tuple(sorted(chosen)[:bin_count])


def sharing_degree(left: IntArray, right: IntArray) -> float:
    """Return how much two channel sets share (equation `eqs` of the paper): |A and B| / min(|A|, |B|).

    Args:
        left: Numbers of the channels of one set.
        right: Numbers of the channels of the other set.

    Returns:
        The degree, from 0 to 1; it is 1 for any two widths of the fixed sharing.
    """
    return np.intersect1d(left, right).size / min(np.unique(left).size, np.unique(right).size)


class Sharing(Protocol):
    """A way to share weights: it says which subnets stand for a width vector."""

    @property
    def averages(self) -> bool:
        """True if all candidates are trained (with averaged losses) instead of the best one."""
        ...

    def candidates(self, binned: "BinnedSpace", bin_counts: IntArray, generator: torch.Generator) -> list[Subnet]:
        """Return the distinct subnets that stand for one width vector.

        Args:
            binned: The width space and its bins.
            bin_counts: Bins per group.
            generator: Source of random numbers.

        Returns:
            The subnets.
        """
        ...


@dataclass(frozen=True)
class LocallyFree:
    """Locally free weight sharing: r + 1 bins of the zone around each width are free; r = 0 is the fixed sharing.

    Example:
        >>> from cafenet.supernet.sharing import LocallyFree
        >>> LocallyFree(r=2).num_offset_sets
        10
    """

    r: Count = 0
    """Offset of the zone, which has 2r + 1 bins."""
    per_group: bool = False
    """If True, `max_candidates` combinations are drawn in which every group has offsets of its own. If False, all
    groups have the same offsets, which gives C(2r+1, r+1) candidates (3, 10, 35 for r = 1, 2, 3)."""
    max_candidates: PositiveInt = 16
    """Number of candidates that are drawn with `per_group`."""
    averages: bool = False
    """If True, all candidates are trained (with averaged losses) instead of the best one."""

    def __post_init__(self) -> None:
        check_options(self, BinError)
        if self.num_offset_sets > _MOST_OFFSET_SETS:
            raise BinError(
                f"r must give at most {_MOST_OFFSET_SETS} candidates a width, "
                f"but r={self.r} gives {self.num_offset_sets}"
            )

    @property
    def num_offset_sets(self) -> int:
        """C(2r+1, r+1): the number of candidates of a width that is not at the edge of its group."""
        return math.comb(2 * self.r + 1, self.r + 1)

    def candidates(self, binned: "BinnedSpace", bin_counts: IntArray, generator: torch.Generator) -> list[Subnet]:
        """Return one subnet per set of offsets, or with `per_group` subnets whose offsets are drawn for each group.

        Args:
            binned: The width space and its bins.
            bin_counts: Bins per group.
            generator: Source of random numbers.

        Returns:
            The distinct subnets.
        """
        if self.per_group and self.r > 0:
            shape = (self.max_candidates, len(bin_counts))
            drawn = torch.randint(self.num_offset_sets, shape, generator=generator).tolist()
            drawn[0] = [0] * len(bin_counts)
        else:
            drawn = [[number] * len(bin_counts) for number in range(self.num_offset_sets)]
        chosen = dict.fromkeys(
            tuple(
                assigned_bins(int(c), n, self.r, offset_sets(self.r)[number])
                for c, n, number in zip(bin_counts, binned.num_bins, row, strict=True)
            )
            for row in drawn
        )
        return [binned.subnet(bins) for bins in chosen]


@dataclass(frozen=True)
class Bilateral:
    """Weight sharing of BCNet: the leftmost and the rightmost bins both stand for a width, and both are trained.

    The first bin takes the remainder of the division into bins and belongs to both sides, so that their widths are
    equal.

    Example:
        >>> from cafenet.supernet.sharing import Bilateral
        >>> Bilateral().averages
        True
    """

    averages: bool = True
    """If True, both sides are trained with averaged losses."""

    def __post_init__(self) -> None:
        check_options(self, BinError)

    def candidates(self, binned: "BinnedSpace", bin_counts: IntArray, generator: torch.Generator) -> list[Subnet]:
        """Return the two sides, or one subnet if they are equal.

        Args:
            binned: The width space and its bins.
            bin_counts: Bins per group.
            generator: Not used.

        Returns:
            One or two subnets.
        """
        left = tuple(tuple(range(1, int(c) + 1)) for c in bin_counts)
        right = tuple((1, *range(n - int(c) + 2, n + 1)) for c, n in zip(bin_counts, binned.num_bins, strict=True))
        return [binned.subnet(bins) for bins in dict.fromkeys((left, right))]


class BinnedSpace:
    """A width space with its bins: it turns bin numbers into subnets."""

    def __init__(self, space: WidthSpace, bins: Bins) -> None:
        """Compute the units of each bin.

        Args:
            space: The width space.
            bins: The bins of its groups.

        Raises:
            BinError: If the bins belong to another width space.
        """
        names = [group.name for group in space.groups]
        if [group.name for group in bins.groups] != names:
            raise BinError("bins must belong to the width space: build them with flops_sensitive_bins(space, ...)")
        self.space, self.bins = space, bins
        self.num_bins: list[int] = bins.num_bins.tolist()
        self._edges = [
            _unit_edges(b.first, b.size, g.channels, g.divisor) for b, g in zip(bins.groups, space.groups, strict=True)
        ]
        self._units = [
            [np.arange(low, high, dtype=np.int64) for low, high in zip([0, *edges], edges, strict=False)]
            for edges in self._edges
        ]
        """Units of each bin, by group; number 0, before the first bin, has none."""

    def subnet(self, bins: tuple[tuple[int, ...], ...]) -> Subnet:
        """Return the subnet that keeps the given bins.

        Args:
            bins: Numbers of the kept bins of each group, counted from 1.

        Returns:
            The subnet.
        """
        kept = (np.concatenate([of_bin[n] for n in numbers]) for numbers, of_bin in zip(bins, self._units, strict=True))
        return Subnet(tuple(kept))

    def leftmost(self, bin_counts: IntArray) -> Subnet:
        """Return the subnet of the fixed sharing.

        Args:
            bin_counts: Bins per group.

        Returns:
            The subnet of the leftmost bins.
        """
        units = [edges[int(c)] for c, edges in zip(bin_counts, self._edges, strict=True)]
        return Subnet(tuple(np.arange(n, dtype=np.int64) for n in units))


def _unit_edges(first: int, size: int, channels: int, divisor: int) -> list[int]:
    """Return the edges of the bins in units: 10 channels in bins of 3 give 0, 4, 7, 10."""
    return [0, *(edge // divisor for edge in range(first, channels + 1, size))]


def check_sharing(sharing: Sharing, bins: Bins) -> None:
    """Check that the zone is smaller than some group; otherwise no width has any freedom.

    Args:
        sharing: The way to share weights.
        bins: The bins of each group.

    Raises:
        BinError: If it is no such way, or `r` is at least the largest number of bins.
    """
    if not callable(getattr(sharing, "candidates", None)):
        raise BinError(f"sharing must be LocallyFree(r) or Bilateral(), or have their methods, but is {sharing!r}")
    if isinstance(sharing, LocallyFree) and sharing.r > 0 and sharing.r >= int(bins.num_bins.max()):
        raise BinError(
            f"`r < number of bins` must hold for at least one group, but got r={sharing.r} and at most "
            f"{int(bins.num_bins.max())} bins; lower r or beta"
        )
