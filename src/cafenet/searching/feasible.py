"""Width vectors that meet a budget, constructed directly instead of drawn until one fits.

A cost never falls when a group takes one more bin. A path that only adds bins therefore has one last point that fits
the budget, and bisection finds that point for a whole population at once; random paths give random vectors. Smallest
example: two groups of 4 bins, cost a + b, budget 5. The path (1,1) (1,2) (1,3) (2,3) (3,3) ends at (2,3), and the path
(1,1) (2,1) (3,1) (4,1) (4,2) ends at (4,1).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cafenet.errors import BudgetError
from cafenet.searching.budget import UNITS, Budget
from cafenet.space.bins import Bins
from cafenet.space.cost import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]

# Share of the genes (bin counts) of a sample that are drawn from the whole range of their group, a quarter of them at
# each end of it. All other genes follow the budget.
_SHARE_OF_STRAYS = 0.04
_ENUMERABLE = 200_000
_ROWS_AT_ONCE = 8192


class Feasible:
    """The vectors of bin counts, from 1 to `num_bins[g]` in group g, that meet every cap of a budget.

    Results of `sample`, `mutate`, `crossover` and `repair` use a share of the budget inside the band, 95% to 100% by
    default. If the bins are too coarse for that, the results meet the budget and no single bin can be added to them.
    """

    def __init__(
        self,
        bins: Bins,
        costs: Mapping[str, Callable[[IntArray], npt.NDArray[Any]]],
        budget: Budget,
        band: tuple[float, float] = (0.95, 1.0),
    ) -> None:
        """Check that the smallest subnet meets the budget.

        Args:
            bins: The bins of each group.
            costs: Cost functions by name. Each maps an array of widths of shape (N, groups) to N costs that never fall
                when a width grows.
            budget: The caps that must hold.
            band: Smallest and largest share of the budget that constructed vectors use.

        Raises:
            BudgetError: If the band is not within 0 and 1, a cap has no cost function, or the smallest subnet exceeds a
                cap.
        """
        if not 0 <= band[0] <= band[1] <= 1:
            raise BudgetError(f"`0 <= low <= high <= 1` must hold for the band under the budget, but got {band}")
        missing = [cap.cost for cap in budget.caps if cap.cost not in costs]
        if missing:
            raise BudgetError(f"every cap needs a cost function, but there is none for {', '.join(missing)}")
        self.bins, self.costs, self.budget, self.band = bins, costs, budget, band
        self.num_bins = bins.num_bins
        self._check_smallest()

    def _check_smallest(self) -> None:
        """Raise an error that names every cap which the smallest subnet exceeds."""
        widths = self.bins.widths(np.ones_like(self.num_bins)[None])
        smallest = [float(self.costs[cap.cost](widths)[0]) for cap in self.budget.caps]
        problems = [
            f"got a budget of {cap}, and the smallest subnet costs {cost:,.12g} {UNITS[cap.cost]}"
            for cap, cost in zip(self.budget.caps, smallest, strict=True)
            if cost > cap.limit
        ]
        if problems:
            raise BudgetError(
                f"`budget >= smallest subnet` must hold, but {' and '.join(problems)}; raise the budget "
                f"{self.budget.text!r}, lower min_width or use smaller bins (a lower beta)"
            )

    def usage(self, bin_counts: IntArray) -> FloatArray:
        """Return the share of the budget that each row uses: the largest cost / limit over all caps.

        Args:
            bin_counts: Bins per group, one width vector per row.

        Returns:
            One share per row; 140M of 150M FLOPs is 0.933.
        """
        widths = self.bins.widths(bin_counts)
        shares: FloatArray = np.max([self.costs[cap.cost](widths) / cap.limit for cap in self.budget.caps], axis=0)
        return shares

    def measured_usage(self, bin_counts: IntArray, measured: Mapping[str, float]) -> float:
        """Return the share of the budget that one width vector uses, by measured costs if there are any.

        Args:
            bin_counts: Bins per group of the width vector.
            measured: Measured costs by name, which take the place of estimates.

        Returns:
            The largest cost / limit over all caps.
        """
        widths = self.bins.widths(bin_counts[None])
        return max(
            (measured[cap.cost] if cap.cost in measured else float(self.costs[cap.cost](widths)[0])) / cap.limit
            for cap in self.budget.caps
        )

    def fits(self, bin_counts: IntArray) -> BoolArray:
        """Return which rows meet every cap; a cost equal to the limit meets it.

        Args:
            bin_counts: Bins per group, one width vector per row.

        Returns:
            One boolean per row. (For floats, too, x / y <= 1 means x <= y.)
        """
        return self.usage(bin_counts) <= 1

    def in_band(self, bin_counts: IntArray) -> BoolArray:
        """Return which rows use a share of the budget inside the band.

        Args:
            bin_counts: Bins per group, one width vector per row.

        Returns:
            One boolean per row.
        """
        usage = self.usage(bin_counts)
        return (usage >= self.band[0]) & (usage <= self.band[1])

    def sample(self, n: int, rng: np.random.Generator) -> IntArray:
        """Draw random vectors, spread over the whole range of every group.

        Args:
            n: Number of vectors.
            rng: Source of random numbers.

        Returns:
            Bins per group, shape (n, groups).
        """
        shape = (n, self.num_bins.size)
        even = rng.random(shape)

        def at(time: FloatArray, rows: IntArray) -> IntArray:
            share = _skewed(even[rows], time)
            points: IntArray = 1 + np.minimum(share * self.num_bins, self.num_bins - 1).astype(np.int64)
            return points

        drawn = self._last_under(at, n)
        half = self.num_bins // 2
        stray = np.clip(rng.integers(1 - half, self.num_bins + half + 1, size=shape), 1, self.num_bins)
        keep = rng.random(shape) < _SHARE_OF_STRAYS
        return self.repair(np.where(keep, stray, drawn), rng, keep)

    def mutate(self, parents: IntArray, rng: np.random.Generator, rate: float = 0.1) -> IntArray:
        """Change some genes (bin counts) of each row, at least one; the other genes make room for them.

        A row in which the budget allows no such change is replaced by a sample.

        Args:
            parents: Bins per group, one width vector per row.
            rng: Source of random numbers.
            rate: Probability that a gene is changed.

        Returns:
            One changed vector per row of `parents`.
        """
        varies = self.num_bins > 1
        if not varies.any():
            return parents.copy()
        chosen = (rng.random(parents.shape) < rate) & varies
        chosen[np.arange(len(parents)), rng.choice(np.flatnonzero(varies), len(parents))] |= ~chosen.any(axis=1)
        others = rng.integers(1, np.maximum(self.num_bins, 2), size=parents.shape)
        children = self.repair(np.where(chosen, others + (others >= parents), parents), rng, chosen)
        undone = (children == parents).all(axis=1)
        children[undone] = self.sample(int(undone.sum()), rng)
        return children

    def crossover(self, mothers: IntArray, fathers: IntArray, rng: np.random.Generator) -> IntArray:
        """Make one child per pair of rows; each gene (bin count) comes from either parent with equal probability.

        Args:
            mothers: Bins per group, one width vector per row.
            fathers: The other parents, in the same order.
            rng: Source of random numbers.

        Returns:
            One child per pair, repaired to meet the budget.
        """
        return self.repair(np.where(rng.random(mothers.shape) < 0.5, mothers, fathers), rng)

    def repair(self, bin_counts: IntArray, rng: np.random.Generator, keep: BoolArray | None = None) -> IntArray:
        """Move each row into the band by removing bins from random groups or adding bins to them; rows inside it stay.

        Args:
            bin_counts: Bins per group, one width vector per row.
            rng: Source of random numbers.
            keep: Marks genes (bin counts) that move only if moving all other genes of the row is not enough.

        Returns:
            The repaired rows.
        """
        bin_counts, last = bin_counts.copy(), np.zeros(bin_counts.shape, dtype=bool) if keep is None else keep
        over = np.flatnonzero(self.usage(bin_counts) > self.band[1])
        bin_counts[over] = self._climb(np.ones_like(bin_counts[over]), bin_counts[over], ~last[over], rng)
        under = np.flatnonzero(self.usage(bin_counts) < self.band[0])
        while under.size:
            free = self._can_grow(bin_counts[under])
            under, free = under[free.any(axis=1)], free[free.any(axis=1)]
            before, top = bin_counts[under], np.where(free, self.num_bins, bin_counts[under])
            bin_counts[under] = self._climb(before, top, last[under], rng)
            moved = (bin_counts[under] != before).any(
                axis=1
            )  # without progress the loop must end: costs may be rounded
            under = under[moved & (self.usage(bin_counts[under]) < self.band[0])]
        return bin_counts

    def _can_grow(self, bin_counts: IntArray) -> BoolArray:
        """Return which groups of each row can take one more bin. A group that cannot never can later: bins are only
        added."""
        free = bin_counts < self.num_bins
        for group in range(self.num_bins.size):
            rows = np.flatnonzero(free[:, group])
            grown = bin_counts[rows]
            grown[:, group] += 1
            free[rows, group] = self.usage(grown) <= self.band[1]
        return free

    def _climb(self, bottom: IntArray, top: IntArray, late: BoolArray, rng: np.random.Generator) -> IntArray:
        """Return the last point not above the band on a random path from each row of `bottom` up to `top`.

        Every group moves during a random part of the first half of the path, and a late group during a part of the
        second half. Few groups move, therefore, if little is missing.
        """
        begin, end = (np.sort(rng.random((2, *bottom.shape)), axis=0) + late) / 2
        span, length = np.maximum(end - begin, 1e-12), top - bottom

        def at(time: FloatArray, rows: IntArray) -> IntArray:
            share = np.clip((time[:, None] - begin[rows]) / span[rows], 0, 1)
            points: IntArray = bottom[rows] + (share * length[rows]).astype(np.int64)
            return points

        return self._last_under(at, len(bottom))

    def _last_under(self, at: Callable[[FloatArray, IntArray], IntArray], n: int) -> IntArray:
        """Return the last points of n rising paths that are not above the band, by bisection of the time from 0 to 1.

        `at` gives the points of some paths (by number), each at its own time. The points at time 0 must fit.
        """
        rows, before, after = np.arange(n), np.zeros(n), np.ones(n)
        result, above = at(before, rows), at(after, rows)
        whole = self.usage(above) <= self.band[1]
        result[whole] = above[whole]
        while rows.size:
            is_open = ((above - result[rows]).sum(axis=1) > 1) & (after - before > 1e-12)
            rows, before, after, above = rows[is_open], before[is_open], after[is_open], above[is_open]
            middle = (before + after) / 2
            points = at(middle, rows)
            fits = self.usage(points) <= self.band[1]
            result[rows[fits]], above[~fits] = points[fits], points[~fits]
            before, after = np.where(fits, middle, before), np.where(fits, after, middle)
        return result

    def uniform(self) -> IntArray:
        """Return the widest vector that fits and scales all groups by one factor, each rounded to its nearest bin.

        Returns:
            Bins per group, shape (groups,).
        """
        edges = [(b.first + (np.arange(b.num_bins - 1) + 0.5) * b.size) / b.channels for b in self.bins.groups]
        factors = np.unique(np.concatenate([[0.0], *edges]))
        fitting, beyond = 0, factors.size
        while beyond - fitting > 1:
            middle = (fitting + beyond) // 2
            if self.fits(_rounded(edges, factors[middle])[None])[0]:
                fitting = middle
            else:
                beyond = middle
        return _rounded(edges, factors[fitting])

    def fill(self, bin_counts: IntArray, rng: np.random.Generator, low: float = 0.99, n: int = 8) -> IntArray:
        """Return up to n distinct vectors near a given one that use at least `low` of the budget.

        The method tries the vector itself, bins added to it, and swaps (one bin more in one group, one fewer in
        another). If that is not enough, it tries all vectors of a space of up to 200,000, or mutated and new vectors of
        a larger space and their swaps.

        Args:
            bin_counts: Bins per group of the given vector, shape (groups,).
            rng: Source of random numbers.
            low: Smallest share of the budget to use.
            n: Largest number of vectors to return.

        Returns:
            One vector per row, those with the fewest moved bins first.
        """
        tight = Feasible(self.bins, self.costs, self.budget, (low, 1.0))
        near = np.unique(tight.repair(np.repeat(bin_counts[None], n, axis=0), rng), axis=0)
        found = tight._inside([bin_counts[None], near, *(_steps(row, self.num_bins) for row in [bin_counts, *near])])
        if len(found) < n:
            found = tight._inside([found, *tight._further(bin_counts, rng, n)])
        moved = np.abs(found - bin_counts).sum(axis=1)
        return found[np.lexsort([rng.random(len(found)), moved])[:n]]

    def _inside(self, candidates: Iterable[IntArray]) -> IntArray:
        """Return the distinct candidates inside the band."""
        return np.unique(np.concatenate([rows[self.in_band(rows)] for rows in candidates]), axis=0)

    def _further(self, bin_counts: IntArray, rng: np.random.Generator, n: int) -> Iterator[IntArray]:
        """Yield all vectors of a small space in parts, or a random selection of a large space."""
        size = self.bins.search_space_size
        if size <= _ENUMERABLE:
            strides = np.cumprod(self.num_bins) // self.num_bins
            for start in range(0, size, _ROWS_AT_ONCE):
                numbers = np.arange(start, min(start + _ROWS_AT_ONCE, size))
                yield numbers[:, None] // strides % self.num_bins + 1
            return
        drawn = np.concatenate([self.mutate(np.repeat(bin_counts[None], 8 * n, axis=0), rng), self.sample(8 * n, rng)])
        yield drawn
        yield from (_steps(row, self.num_bins) for row in rng.choice(drawn, n, replace=False))


def _skewed(even: FloatArray, time: FloatArray) -> FloatArray:
    """Return numbers between 0 and 1: all 0 at time 0, as given at time 1/2, all 1 at time 1, and skewed in between."""
    power = (1 - np.abs(2 * time - 1))[:, None]
    skewed: FloatArray = np.where(time[:, None] < 0.5, 1 - (1 - even) ** power, even**power)
    return skewed


def _rounded(edges: list[FloatArray], factor: float) -> IntArray:
    """Return one bin per group, plus one for each edge that the factor has reached."""
    return np.array([1 + np.searchsorted(edge, factor, side="right") for edge in edges], dtype=np.int64)


def _steps(bin_counts: IntArray, num_bins: IntArray) -> IntArray:
    """Return every vector with one bin more in some group, and one fewer in another group or in none."""
    one = np.eye(bin_counts.size + 1, bin_counts.size, dtype=np.int64)  # the last row stands for no group
    moved = (bin_counts + one[:-1, None] - one[None]).reshape(-1, bin_counts.size)
    steps: IntArray = moved[((moved >= 1) & (moved <= num_bins)).all(axis=1)]
    return steps
