"""The end of a search: filled up to the budget, scored exactly, and the first that keeps its word."""

import numpy as np
import pytest
from searching import TableScorer, feasible

from cafenet.errors import BudgetError
from cafenet.scoring import Score
from cafenet.searching.algorithm import Proposal
from cafenet.searching.contest import Contest
from cafenet.searching.finalists import pick_best
from cafenet.searching.store import TrialStore


class Misled(TableScorer):
    """Says the sum in a race, and something else exactly; vectors in `drops` are dropped."""

    def __init__(self, exact=lambda taken: taken.sum(), drops=()):
        super().__init__(lambda taken: taken.sum())
        self._exact, self._drops = exact, drops

    def score(self, taken, bar=None, *, exact=False):
        score = super().score(taken, bar, exact=exact)
        is_complete = exact or tuple(taken.tolist()) not in self._drops
        return Score(float(self._exact(taken)) if exact else score.value, 0, 3, 100, is_complete, 0.0, None)


def picked(space, rows, scorer=None, min_usage=0.0, num_finalists=5, refuses=lambda scored: None, settled=None):
    """The pick after these rows were proposed, and what was scored exactly."""
    scorer = Misled() if scorer is None else scorer
    contest = Contest(scorer, TrialStore(None, space.bins, {}), lambda taken: {"flops": 1.0}, "search")
    contest.values(Proposal(np.array(rows), 3))
    best = pick_best(
        contest,
        space,
        np.random.default_rng(0),
        min_usage=min_usage,
        num_finalists=num_finalists,
        refuses=refuses,
        settled=None if settled is None else np.array(settled),
    )
    return best.taken, [taken for taken, exact in scorer.asked if exact]


SPACE = feasible([9, 9], 10)


def test_the_exact_score_decides_among_the_finalists():
    scorer = Misled(exact=lambda taken: taken[0])
    best, exact = picked(SPACE, [[2, 8], [6, 3], [4, 4], [8, 1]], scorer, num_finalists=3)
    assert best == (8, 1)
    assert sorted(exact) == [(2, 8), (6, 3), (8, 1)]
    best, exact = picked(SPACE, [[2, 8], [6, 3], [4, 4], [8, 1]], Misled(lambda taken: taken[0]), num_finalists=1)
    assert (best, exact) == ((2, 8), [(2, 8)])


def test_widths_that_an_algorithm_settles_on_are_tried_in_turn_whatever_their_score():
    rows, settled = [[2, 8], [6, 3], [8, 1]], [[5, 5], [4, 6], [9, 1]]
    scorer = Misled(exact=lambda taken: taken[0])
    assert picked(SPACE, rows, scorer, settled=settled) == ((5, 5), [(5, 5)])  # no more than needed is scored

    def refuses(scored):
        return "too slow" if scored.taken == (5, 5) else None

    scorer = Misled(exact=lambda taken: taken[0])
    assert picked(SPACE, rows, scorer, settled=settled, refuses=refuses) == ((4, 6), [(5, 5), (4, 6)])
    best, exact = picked(SPACE, rows, Misled(), settled=[[2, 6]], min_usage=0.99)
    assert sum(best) == 10
    assert best == exact[0]
    with pytest.raises(BudgetError, match=r"none does \(3 refused; the last: no\)"):
        picked(SPACE, rows, Misled(), settled=settled, refuses=lambda scored: "no")


def test_equal_scores_are_settled_by_the_width():
    rows = [[2, 7], [3, 6], [6, 3]]
    assert picked(SPACE, rows)[0] == picked(SPACE, rows[::-1])[0] == (2, 7)


def test_finalists_are_filled_up_where_they_use_too_little():
    best, exact = picked(SPACE, [[2, 6]], min_usage=0.99)
    assert sum(best) == 10
    assert all(sum(taken) == 10 for taken in exact)
    assert 1 <= len(exact) <= 2
    assert picked(SPACE, [[2, 6]], min_usage=0.8)[0] == (2, 6)
    assert picked(SPACE, [[2, 8]], min_usage=1.0) == ((2, 8), [(2, 8)])


def test_where_no_width_uses_enough_the_best_stays_as_it_is():
    coarse = feasible([3, 3], 50, [17, 17])  # sums of 34 or 51
    assert picked(coarse, [[1, 1]], min_usage=0.99) == ((1, 1), [(1, 1)])


def test_widths_above_the_budget_and_dropped_ones_are_no_finalists():
    rows = [[9, 9], [2, 7], [5, 5], [1, 3]]
    assert picked(SPACE, rows, Misled(drops=[(5, 5)]))[0] == (2, 7)


def test_the_next_best_is_tried_where_one_is_refused():
    rows, refused = [[5, 5], [5, 4], [5, 3], [5, 2], [5, 1]], []

    def refuses(scored):
        if sum(scored.taken) > 7:
            refused.append(scored.taken)
            return f"{sum(scored.taken)} is too much"
        return None

    best, exact = picked(SPACE, rows, num_finalists=2, refuses=refuses)
    assert best == (5, 2)
    assert refused == [(5, 5), (5, 4), (5, 3)]
    assert exact == [(5, 5), (5, 4), (5, 3), (5, 2)]


def test_none_that_keeps_the_budget_is_an_error():
    with pytest.raises(
        BudgetError, match=r"keep the budget 'b', but none does \(2 refused; the last: too slow\); raise"
    ):
        picked(SPACE, [[5, 5], [5, 4]], refuses=lambda scored: "too slow")
    with pytest.raises(BudgetError, match="keep the budget 'b', but none does; raise the budget or search longer"):
        picked(SPACE, [[9, 9]])
