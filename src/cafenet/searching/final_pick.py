"""The end of a search: the best widths are filled up to the budget and scored exactly, and the best that fits
is taken."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from cafenet.errors import BudgetError
from cafenet.searching.algorithms.base import Settle
from cafenet.searching.feasible import Feasible
from cafenet.searching.latency.correction import Meter, Meters
from cafenet.searching.score_board import Contest
from cafenet.searching.store.scored_width import ScoredWidth
from cafenet.space.bins import IntArray

_FILLED_EACH = 2
"""Number of filled-up vectors that are tried for each of the best widths."""
_LESS = tuple(0.95**step for step in range(50))
"""Shares of what should be used that are enough if no width uses more, down to a twelfth."""
_ROUNDS, _MEASURED_EACH = 8, 3
"""Largest number of corrections of the latency estimate, and of measurements before each of them."""


def pick_best(
    contest: Contest,
    feasible: Feasible,
    rng: np.random.Generator,
    *,
    min_usage: float,
    num_finalists: int,
    settle: Settle | None = None,
    meter: Meter | Meters | None = None,
) -> ScoredWidth:
    """Pick the width vector with the best exact score that uses at least `min_usage` of the budget, if any vector can.

    Args:
        contest: The scores of the search.
        feasible: The width vectors that meet the budget.
        rng: Source of random numbers for filling up.
        min_usage: Smallest share of the budget that the result should use.
        num_finalists: Number of best widths that are scored exactly and compared.
        settle: Gives the vectors that the algorithm settles on, best first. They are tried in this order, whatever
            their scores are.
        meter: Measures the latency of a vector, or writes its file, before it is taken. If vectors miss the cap, the
            next ones are picked under a cap that is corrected by the measurements. If that does not help, a scored
            vector that meets the cap is taken as it is, or the smallest subnet.

    Returns:
        The chosen vector with its exact score.

    Raises:
        BudgetError: If no scored vector meets the budget, or none meets the latency cap when it is measured.
    """

    def finalists(within: Feasible) -> Iterator[ScoredWidth]:
        """Yield the finalists, each scored exactly before its turn."""
        tried = _by_score(contest, feasible) if settle is None else list(settle(within))
        num_together = num_finalists if settle is None else 1
        for start in range(0, len(tried), num_together):
            together = contest.exact(_filled(tried[start : start + num_together], within, rng, min_usage))
            yield from together if settle is not None else sorted(together, key=_rank)

    if meter is None:
        best = next(finalists(feasible), None)
        if best is None:
            raise BudgetError(
                f"a scored width must keep the budget {feasible.budget.text!r}, but none does; raise the budget or "
                "search longer"
            )
        return best
    kept: ScoredWidth | None = None
    for _ in range(_ROUNDS):
        fresh = (scored for scored in finalists(meter.within) if scored.bin_counts not in meter.measured)
        found = next((each for each in islice(fresh, _MEASURED_EACH) if meter.keeps(np.array(each.bin_counts))), None)
        kept = found or kept
        if not meter.correct(None if found is None else np.array(found.bin_counts)):
            break
    return kept or _any_that_keeps(contest, feasible, meter)


def _any_that_keeps(contest: Contest, feasible: Feasible, meter: Meter | Meters) -> ScoredWidth:
    """Return a scored vector that meets the cap when it is measured, or the smallest one, without filling it up."""
    smallest = np.ones_like(feasible.num_bins)
    for row in meter.likely_first([*_by_score(contest, feasible), smallest]):
        if meter.keeps(row):
            return contest.exact([row])[0]
    raise BudgetError(
        f"a width must keep the budget {feasible.budget.text!r} when it is measured, but none of {len(meter.measured)} "
        f"does, and the smallest subnet {meter.says(smallest)} allowed; raise the budget, or take other load from the "
        "machine"
    )


def _rank(scored: ScoredWidth) -> tuple[float, tuple[int, ...]]:
    """Return a sort key: the highest score comes first, and equal scores are ordered by width."""
    return -scored.score.value, scored.bin_counts


def _by_score(contest: Contest, feasible: Feasible) -> list[IntArray]:
    """Return the vectors within the budget whose scores are complete, best first."""
    ranked = sorted(contest.seen.values(), key=_rank)
    rows = [np.array(each.bin_counts, dtype=np.int64) for each in ranked if each.score.is_complete]
    return [row for row in rows if feasible.fits(row[None])[0]]


def _filled(best: list[IntArray], feasible: Feasible, rng: np.random.Generator, min_usage: float) -> list[IntArray]:
    """Return the vectors that use enough of the budget, with near vectors that do in place of the others.

    If no vector can use enough, less is enough, step by step. If none fits at all, return those that fit as they are,
    and the others reduced by as little as the bins allow.
    """
    for enough in (min_usage * share for share in _LESS):
        rows: dict[tuple[int, ...], IntArray] = {}
        for bin_counts in best:
            is_enough = enough <= float(feasible.usage(bin_counts[None])[0]) <= 1
            near = bin_counts[None] if is_enough else feasible.fill(bin_counts, rng, low=enough, n=_FILLED_EACH)
            rows.update({tuple(row.tolist()): row for row in near})
        if rows or not best:
            return list(rows.values())
    fits = feasible.fits(np.array(best))
    repaired = feasible.repair(np.array(best), rng)
    return [row if fitting else other for row, other, fitting in zip(best, repaired, fits, strict=True)]
