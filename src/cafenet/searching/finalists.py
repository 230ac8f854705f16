"""The end of a search: the best widths filled up to the budget, scored exactly, and the first that keeps its word."""

from collections.abc import Callable

import numpy as np

from cafenet.bins import IntArray
from cafenet.errors import BudgetError
from cafenet.searching.contest import Contest
from cafenet.searching.feasible import Feasible
from cafenet.searching.store import ScoredWidth

_FILLED_EACH = 2


def pick_best(
    contest: Contest,
    feasible: Feasible,
    rng: np.random.Generator,
    *,
    min_usage: float,
    num_finalists: int,
    refuses: Callable[[ScoredWidth], str | None] = lambda scored: None,
) -> ScoredWidth:
    """The best width by its exact score, using at least `min_usage` of the budget where any width can.

    refuses: why a width cannot be taken after all (its measured latency, say), or None. The next best is tried then.
    """
    ranked = sorted(contest.seen.values(), key=lambda each: (-each.score.value, each.taken))
    fitting = [each for each in ranked if each.score.is_complete and feasible.fits(np.array([each.taken]))[0]]
    reasons: list[str] = []
    start = 0
    while start < len(fitting):
        rows = _filled(fitting[start : start + num_finalists], feasible, rng, min_usage)
        start += num_finalists
        for scored in sorted(contest.exact(rows), key=lambda each: (-each.score.value, each.taken)):
            reason = refuses(scored)
            if reason is None:
                return scored
            reasons.append(reason)
    raise BudgetError(
        f"a scored width must keep the budget {feasible.budget.text!r}, but none does"
        + (f" ({len(reasons)} refused; the last: {reasons[-1]})" if reasons else "")
        + "; raise the budget or search longer"
    )


def _filled(best: list[ScoredWidth], feasible: Feasible, rng: np.random.Generator, min_usage: float) -> list[IntArray]:
    """Those that use enough of the budget as they are, and near ones that do for the others; all if there is none."""
    rows: dict[tuple[int, ...], IntArray] = {}
    for scored in best:
        taken = np.array(scored.taken, dtype=np.int64)
        is_enough = float(feasible.usage(taken[None])[0]) >= min_usage
        near = taken[None] if is_enough else feasible.fill(taken, rng, low=min_usage, n=_FILLED_EACH)
        rows.update({tuple(row.tolist()): row for row in near})
    if not rows:
        return [np.array(scored.taken, dtype=np.int64) for scored in best]
    return list(rows.values())
