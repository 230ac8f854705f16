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
    settled: IntArray | None = None,
    refuses: Callable[[ScoredWidth], str | None] = lambda scored: None,
) -> ScoredWidth:
    """The best width by its exact score, using at least `min_usage` of the budget where any width can.

    settled: widths that the algorithm has settled on, best first; then these are tried in turn, whatever their score.
    refuses: why a width cannot be taken after all (its measured latency, say), or None. The next best is tried then.
    """
    tried = _by_score(contest, feasible) if settled is None else list(settled)
    num_together = num_finalists if settled is None else 1
    reasons: list[str] = []
    for start in range(0, len(tried), num_together):
        finalists = contest.exact(_filled(tried[start : start + num_together], feasible, rng, min_usage))
        if settled is None:
            finalists.sort(key=lambda each: (-each.score.value, each.taken))
        for scored in finalists:
            reason = refuses(scored)
            if reason is None:
                return scored
            reasons.append(reason)
    raise BudgetError(
        f"a scored width must keep the budget {feasible.budget.text!r}, but none does"
        + (f" ({len(reasons)} refused; the last: {reasons[-1]})" if reasons else "")
        + "; raise the budget or search longer"
    )


def _by_score(contest: Contest, feasible: Feasible) -> list[IntArray]:
    """The widths within the budget that were scored to the end, best first."""
    ranked = sorted(contest.seen.values(), key=lambda each: (-each.score.value, each.taken))
    rows = [np.array(each.taken, dtype=np.int64) for each in ranked if each.score.is_complete]
    return [row for row in rows if feasible.fits(row[None])[0]]


def _filled(best: list[IntArray], feasible: Feasible, rng: np.random.Generator, min_usage: float) -> list[IntArray]:
    """Those that use enough of the budget as they are, and near ones that do for the others; all if there is none."""
    rows: dict[tuple[int, ...], IntArray] = {}
    for taken in best:
        is_enough = float(feasible.usage(taken[None])[0]) >= min_usage
        near = taken[None] if is_enough else feasible.fill(taken, rng, low=min_usage, n=_FILLED_EACH)
        rows.update({tuple(row.tolist()): row for row in near})
    return list(rows.values()) or best
