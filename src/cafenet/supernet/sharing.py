"""Assignments: the bins that stand for a width (paper, "Locally free weight sharing").

Smallest example: r = 1 and a width of c = 5 of 8 bins. Bins 1 to 3 are the base; two of the zone 4, 5, 6 are free: {4,
5}, {4, 6} or {5, 6}. With r = 0 there is one assignment, the leftmost bins, which is the fixed pattern of slimmable
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

_MOST_PATTERNS = 2000


@lru_cache
def patterns(r: int) -> tuple[Offsets, ...]:
    """Return all ways to take r + 1 of the 2r + 1 bins of a zone.

    Args:
        r: Offset of the zone.

    Returns:
        The ways as offsets from the width, the leftmost first.
    """
    return tuple(itertools.combinations(range(-r, r + 1), r + 1))


@lru_cache(maxsize=65536)
def assigned_bins(num_taken: int, num_bins: int, r: int, offsets: Offsets) -> tuple[int, ...]:
    """Return the bins that stand for a width under one pattern.

    At the edges, offsets outside the group are replaced by the nearest free bin inside (the lower of two), and surplus
    bins are dropped from the right, so that every assignment has `num_taken` bins.

    Args:
        num_taken: Width in bins.
        num_bins: Number of bins of the group.
        r: Offset of the zone.
        offsets: The pattern, one of `patterns(r)`.

    Returns:
        The numbers of the bins, counted from 1.
    """
    base = max(num_taken - r - 1, 1)
    wanted = [num_taken + offset for offset in offsets]
    taken = set(range(1, base + 1)) | {number for number in wanted if 1 <= number <= num_bins}
    for number in wanted:
        if not 1 <= number <= num_bins:
            free = [other for other in range(1, num_bins + 1) if other not in taken]
            if free:
                taken.add(min(free, key=lambda other: (abs(other - number), other)))
    return tuple(sorted(taken)[:num_taken])


def sharing_degree(left: IntArray, right: IntArray) -> float:
    """Return how much two channel sets share (equation `eqs` of the paper): |A and B| / min(|A|, |B|).

    Args:
        left: Numbers of the channels of one set.
        right: Numbers of the channels of the other set.

    Returns:
        The degree, from 0 to 1; it is 1 for any two widths of the fixed pattern.
    """
    return np.intersect1d(left, right).size / min(np.unique(left).size, np.unique(right).size)


class Pattern(Protocol):
    """A pattern of weight sharing: it gives the subnets that stand for a width vector."""

    @property
    def averages(self) -> bool:
        """True if all candidates are trained (with averaged losses) instead of the best one."""
        ...

    def candidates(self, binned: "BinnedSpace", taken: IntArray, generator: torch.Generator) -> list[Subnet]:
        """Return the distinct subnets that stand for one width vector.

        Args:
            binned: The width space and its bins.
            taken: Bins per group.
            generator: Source of random numbers.

        Returns:
            The subnets.
        """
        ...


@dataclass(frozen=True)
class LocallyFree:
    """Locally free weight sharing: r + 1 bins of the zone around each width are free; r = 0 is the fixed pattern.

    Example:
        >>> from cafenet.supernet.sharing import LocallyFree
        >>> LocallyFree(r=2).num_patterns
        10
    """

    r: Count = 0
    """Offset of the zone, which has 2r + 1 bins."""
    per_group: bool = False
    """If True, `max_candidates` combinations are drawn in which every group follows a pattern of its own. If False, all
    groups follow the same pattern, which gives C(2r+1, r+1) candidates (3, 10, 35 for r = 1, 2, 3)."""
    max_candidates: PositiveInt = 16
    """Number of candidates that are drawn with `per_group`."""
    averages: bool = False
    """If True, all candidates are trained (with averaged losses) instead of the best one."""

    def __post_init__(self) -> None:
        check_options(self, BinError)
        if self.num_patterns > _MOST_PATTERNS:
            raise BinError(
                f"r must give at most {_MOST_PATTERNS} candidates a width, but r={self.r} gives {self.num_patterns}"
            )

    @property
    def num_patterns(self) -> int:
        """C(2r+1, r+1): the number of candidates of a width that is not at the edge of its group."""
        return math.comb(2 * self.r + 1, self.r + 1)

    def candidates(self, binned: "BinnedSpace", taken: IntArray, generator: torch.Generator) -> list[Subnet]:
        """Return one subnet per pattern, or with `per_group` subnets of a pattern drawn for each group.

        Args:
            binned: The width space and its bins.
            taken: Bins per group.
            generator: Source of random numbers.

        Returns:
            The distinct subnets.
        """
        if self.per_group and self.r > 0:
            shape = (self.max_candidates, len(taken))
            drawn = torch.randint(self.num_patterns, shape, generator=generator).tolist()
            drawn[0] = [0] * len(taken)
        else:
            drawn = [[number] * len(taken) for number in range(self.num_patterns)]
        chosen = dict.fromkeys(
            tuple(
                assigned_bins(int(c), n, self.r, patterns(self.r)[number])
                for c, n, number in zip(taken, binned.num_bins, row, strict=True)
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

    def candidates(self, binned: "BinnedSpace", taken: IntArray, generator: torch.Generator) -> list[Subnet]:
        """Return the two sides, or one subnet if they are equal.

        Args:
            binned: The width space and its bins.
            taken: Bins per group.
            generator: Not used.

        Returns:
            One or two subnets.
        """
        left = tuple(tuple(range(1, int(c) + 1)) for c in taken)
        right = tuple((1, *range(n - int(c) + 2, n + 1)) for c, n in zip(taken, binned.num_bins, strict=True))
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

    def leftmost(self, taken: IntArray) -> Subnet:
        """Return the subnet of the fixed pattern.

        Args:
            taken: Bins per group.

        Returns:
            The subnet of the leftmost bins.
        """
        units = [edges[int(c)] for c, edges in zip(taken, self._edges, strict=True)]
        return Subnet(tuple(np.arange(n, dtype=np.int64) for n in units))


def _unit_edges(first: int, size: int, channels: int, divisor: int) -> list[int]:
    """Return the edges of the bins in units: 10 channels in bins of 3 give 0, 4, 7, 10."""
    return [0, *(edge // divisor for edge in range(first, channels + 1, size))]


def check_pattern(pattern: Pattern, bins: Bins) -> None:
    """Check that the zone is smaller than some group; otherwise the pattern has no freedom anywhere.

    Args:
        pattern: The pattern of weight sharing.
        bins: The bins of each group.

    Raises:
        BinError: If `r` is at least the largest number of bins.
    """
    if isinstance(pattern, LocallyFree) and pattern.r > 0 and pattern.r >= int(bins.num_bins.max()):
        raise BinError(
            f"`r < number of bins` must hold for at least one group, but got r={pattern.r} and at most "
            f"{int(bins.num_bins.max())} bins; lower r or beta"
        )
