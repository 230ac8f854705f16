"""The end of a search: the best widths filled up to the budget, scored exactly, and the first that keeps its word."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from cafenet.errors import BudgetError
from cafenet.searching.algorithms.base import Settle
from cafenet.searching.feasible import Feasible
from cafenet.searching.latency.correction import Meter
from cafenet.searching.score_board import Contest
from cafenet.searching.store.scored_width import ScoredWidth, key_of
from cafenet.space.bins import IntArray

_FILLED_EACH = 2
_ROUNDS, _MEASURED_EACH = 8, 3
"""How often the estimate of latency is corrected, and by how many measurements each time."""


def pick_best(
    contest: Contest,
    feasible: Feasible,
    rng: np.random.Generator,
    *,
    min_usage: float,
    num_finalists: int,
    settle: Settle | None = None,
    meter: Meter | None = None,
) -> ScoredWidth:
    """The best width by its exact score, using at least `min_usage` of the budget where any width can.

    settle: what the algorithm settles on, best first; then these are tried in turn, whatever their score.
    meter: measures a width that is to be taken. Where some miss the cap, the next ones are picked under a cap that is
    corrected by the measurements; where that does not help, a scored width is taken as it is, or the smallest.
    """

    def finalists(within: Feasible) -> Iterator[ScoredWidth]:
        """Each is scored exactly before its turn."""
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
        fresh = (scored for scored in finalists(meter.within) if scored.taken not in meter.measured_ms)
        found = next((each for each in islice(fresh, _MEASURED_EACH) if meter.keeps(np.array(each.taken))), None)
        kept = found or kept
        if not meter.correct(None if found is None else np.array(found.taken)):
            break
    return kept or _any_that_keeps(contest, feasible, meter)


def _any_that_keeps(contest: Contest, feasible: Feasible, meter: Meter) -> ScoredWidth:
    """A scored width that keeps the cap when it is measured, or the smallest; not filled up."""
    smallest = np.ones_like(feasible.num_bins)
    for row in meter.likely_first([*_by_score(contest, feasible), smallest]):
        if meter.keeps(row):
            return contest.exact([row])[0]
    raise BudgetError(
        f"a width must keep the budget {feasible.budget.text!r} when it is measured, but none of "
        f"{len(meter.measured_ms)} does, and the smallest subnet takes {meter.measured_ms[key_of(smallest)]:.3g} ms, "
        f"where {meter.limit_ms:.3g} ms are allowed; raise the budget, or take other load from the machine"
    )


def _rank(scored: ScoredWidth) -> tuple[float, tuple[int, ...]]:
    """The highest score first; widths settle equal ones."""
    return -scored.score.value, scored.taken


def _by_score(contest: Contest, feasible: Feasible) -> list[IntArray]:
    """The widths within the budget that were scored to the end, best first."""
    ranked = sorted(contest.seen.values(), key=_rank)
    rows = [np.array(each.taken, dtype=np.int64) for each in ranked if each.score.is_complete]
    return [row for row in rows if feasible.fits(row[None])[0]]


def _filled(best: list[IntArray], feasible: Feasible, rng: np.random.Generator, min_usage: float) -> list[IntArray]:
    """Those that use enough of the budget as they are, and near ones that do for the others.

    Where there is none, all that fit as they are, and the others with as little taken from them as bins allow.
    """
    rows: dict[tuple[int, ...], IntArray] = {}
    for taken in best:
        is_enough = min_usage <= float(feasible.usage(taken[None])[0]) <= 1
        near = taken[None] if is_enough else feasible.fill(taken, rng, low=min_usage, n=_FILLED_EACH)
        rows.update({tuple(row.tolist()): row for row in near})
    if rows or not best:
        return list(rows.values())
    fits = feasible.fits(np.array(best))
    repaired = feasible.repair(np.array(best), rng)
    return [row if fitting else other for row, other, fitting in zip(best, repaired, fits, strict=True)]
