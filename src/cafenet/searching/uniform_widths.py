"""The Uniform baseline: one factor for the channels of every group, whatever the bins of a search are.

Smallest example: groups of 10 and 40 channels, cost 10 a + b, budget 75. Just below the factor 0.55 the widths are 5
and 22, which cost 72; from 0.55 on they are 6 and 22, which cost 82. The rest of the budget pays for one more channel
of the second group: 5 and 23. The group takes no more than one, because otherwise the groups would no longer share one
factor.
"""

import numpy as np

from cafenet.searching.feasible import Feasible
from cafenet.space.bins import IntArray, uniform_bins
from cafenet.space.width_space import WidthSpace


def uniform_widths(space: WidthSpace, within: Feasible, *, min_width: int | float = 1, divisor: int = 1) -> IntArray:
    """Return the widths of one factor for all groups that use up a budget best.

    Every group is rounded to its nearest whole unit under the largest factor that fits. Then the groups furthest below
    that factor, relative to their size, take one unit more each, as long as the budget allows it.

    Args:
        space: The width space.
        within: The budget and its cost functions; its bins do not matter.
        min_width: Smallest width of a group, in channels (int) or as a share of the group (float).
        divisor: Widths are multiples of this number, counted down from the full width.

    Returns:
        Channels per group, shape (groups,).

    Raises:
        BudgetError: If the smallest widths exceed the budget.
    """
    finest = max(group.channels for group in space.groups)
    bins = uniform_bins(space, finest, min_width=min_width, divisor=divisor)
    units = Feasible(bins, within.costs, within.budget)
    counts = units.uniform()
    for group in _furthest_below(bins.widths(counts), bins.widths(bins.num_bins)):
        more = counts.copy()
        more[group] += 1
        if more[group] <= bins.num_bins[group] and units.fits(more[None])[0]:
            counts = more
    widths: IntArray = bins.widths(counts)
    return widths


def _furthest_below(widths: IntArray, full: IntArray) -> list[int]:
    """Return the groups with the smallest share first; among equal shares, the larger group, whose unit weighs less."""
    shares = widths / full
    return [int(group) for group in np.lexsort([-full, shares])]
