"""The end of a search: filled up to the budget, scored exactly, and the first that keeps its word."""

from functools import cache

import numpy as np
import pytest

from cafenet.errors import BudgetError
from cafenet.scoring.scorer import Score
from cafenet.searching.algorithms.base import Proposal
from cafenet.searching.algorithms.trend_optimum import best_of_trend
from cafenet.searching.budget import Budget, Cap
from cafenet.searching.feasible import Feasible
from cafenet.searching.final_pick import pick_best
from cafenet.searching.latency.correction import Meter
from cafenet.searching.score_board import Contest
from cafenet.searching.store.trials import TrialStore
from tests.helpers.small_search import TableScorer, binned, feasible, weighted


class Misled(TableScorer):
    """Says the sum in a race, and something else exactly; vectors in `drops` are dropped."""

    def __init__(self, exact=lambda bin_counts: bin_counts.sum(), drops=()):
        super().__init__(lambda bin_counts: bin_counts.sum())
        self._exact, self._drops = exact, drops

    def score(self, bin_counts, bar=None, *, exact=False):
        score = super().score(bin_counts, bar, exact=exact)
        is_complete = exact or tuple(bin_counts.tolist()) not in self._drops
        return Score(float(self._exact(bin_counts)) if exact else score.value, 0, 3, 100, is_complete, 0.0, None)


def picked(space, rows, scorer=None, min_usage=0.0, num_finalists=5, meter=None, settle=None):
    """The pick after these rows were proposed, and what was scored exactly."""
    scorer = Misled() if scorer is None else scorer
    contest = Contest(scorer, TrialStore(None, space.bins, {}), lambda bin_counts: {"flops": 1.0}, "search")
    contest.values(Proposal(np.array(rows), 3))
    best = pick_best(
        contest,
        space,
        np.random.default_rng(0),
        min_usage=min_usage,
        num_finalists=num_finalists,
        meter=meter,
        settle=settle,
    )
    return best.bin_counts, [bin_counts for bin_counts, exact in scorer.asked if exact]


SPACE = feasible([9, 9], 10)


def test_the_exact_score_decides_among_the_finalists():
    scorer = Misled(exact=lambda bin_counts: bin_counts[0])
    best, exact = picked(SPACE, [[2, 8], [6, 3], [4, 4], [8, 1]], scorer, num_finalists=3)
    assert best == (8, 1)
    assert sorted(exact) == [(2, 8), (6, 3), (8, 1)]
    best, exact = picked(
        SPACE, [[2, 8], [6, 3], [4, 4], [8, 1]], Misled(lambda bin_counts: bin_counts[0]), num_finalists=1
    )
    assert (best, exact) == ((2, 8), [(2, 8)])


def test_widths_that_an_algorithm_settles_on_are_tried_in_turn_whatever_their_score():
    rows, settled = [[2, 8], [6, 3], [8, 1]], np.array([[5, 5], [4, 6], [9, 1]])
    scorer = Misled(exact=lambda bin_counts: bin_counts[0])
    assert picked(SPACE, rows, scorer, settle=lambda within: settled) == ((5, 5), [(5, 5)])  # no more than needed
    space = estimated([9, 9], 10)
    meter = Meter(space, lambda bin_counts: 10.1 if tuple(bin_counts) == (5, 5) else 10.0)
    scorer = Misled(exact=lambda bin_counts: bin_counts[0])
    best, exact = picked(space, rows, scorer, settle=lambda within: settled, meter=meter)
    assert (best, exact) == ((4, 6), [(5, 5), (4, 6)])
    best, exact = picked(SPACE, rows, Misled(), settle=lambda within: np.array([[2, 6]]), min_usage=0.99)
    assert sum(best) == 10
    assert best == exact[0]


def test_equal_scores_are_settled_by_the_width():
    rows = [[2, 7], [3, 6], [6, 3]]
    assert picked(SPACE, rows)[0] == picked(SPACE, rows[::-1])[0] == (2, 7)


def test_finalists_are_filled_up_where_they_use_too_little():
    best, exact = picked(SPACE, [[2, 6]], min_usage=0.99)
    assert sum(best) == 10
    assert all(sum(bin_counts) == 10 for bin_counts in exact)
    assert 1 <= len(exact) <= 2
    assert picked(SPACE, [[2, 6]], min_usage=0.8)[0] == (2, 6)
    assert picked(SPACE, [[2, 8]], min_usage=1.0) == ((2, 8), [(2, 8)])


def test_where_no_width_uses_enough_the_best_stays_as_it_is():
    coarse = feasible([3, 3], 50, [17, 17])  # sums of 34 or 51
    assert picked(coarse, [[1, 1]], min_usage=0.99) == ((1, 1), [(1, 1)])


def test_widths_above_the_budget_and_dropped_ones_are_no_finalists():
    rows = [[9, 9], [2, 7], [5, 5], [1, 3]]
    assert picked(SPACE, rows, Misled(drops=[(5, 5)]))[0] == (2, 7)


def test_none_within_the_budget_is_an_error():
    with pytest.raises(BudgetError, match="keep the budget 'b', but none does; raise the budget or search longer"):
        picked(SPACE, [[9, 9]])


def estimated(num_bins, limit_ms):
    """Vectors under a cap on latency that is estimated at a millisecond a bin."""
    costs = {"latency_ms": weighted(*[1.0] * len(num_bins))}
    return Feasible(binned(*num_bins), costs, Budget("b", (Cap("latency_ms", limit_ms),)))


def by_trend(within):
    """What a search by trend settles on: all within a few bins of each other, at the cap."""
    return best_of_trend(within, np.array([3.0, 1.0]), 4.0)


@pytest.mark.parametrize("settle", [None, by_trend])
@pytest.mark.parametrize("error", [1.01, 1.1, 1.7, 3.0])
def test_an_estimate_that_is_too_low_is_corrected(settle, error):
    """Every width that the search proposes or settles on is too slow; others are not."""
    space = estimated([400, 400], 200)
    rows = space.sample(20, np.random.default_rng(0))
    meter = Meter(space, lambda bin_counts: error * bin_counts.sum())
    (one, two), _ = picked(space, rows, min_usage=0.99, settle=settle, meter=meter)
    assert 0.95 * 200 <= error * (one + two) <= 200
    assert len(meter.measured) <= 24
    if settle is not None:
        assert one > 2 * two  # as the trend wants them


@pytest.mark.parametrize("settle", [None, by_trend])
def test_an_estimate_is_corrected_where_another_cap_binds(settle):
    """FLOPs allow 100 bins, which are estimated at a half of the latency and take twice as long as that allows."""
    bins, cost = binned(400, 400), weighted(1.0, 1.0)
    budget = Budget("b", (Cap("flops", 100.0), Cap("latency_ms", 200.0)))
    space = Feasible(bins, {"flops": cost, "latency_ms": cost}, budget)
    meter = Meter(space, lambda bin_counts: 4.0 * bin_counts.sum())
    best, _ = picked(space, space.sample(20, np.random.default_rng(0)), min_usage=0.99, settle=settle, meter=meter)
    assert 0.95 * 200 <= 4 * sum(best) <= 200


def test_settled_rows_that_are_always_the_same_are_narrowed_under_the_corrected_cap():
    """An algorithm of one's own need not settle anew."""
    space = estimated([400, 400], 200)
    meter = Meter(space, lambda bin_counts: 1.1 * bin_counts.sum())
    best, _ = picked(space, [[100, 100]], min_usage=0.99, settle=lambda within: np.array([[120, 80]]), meter=meter)
    assert 0.95 * 200 <= 1.1 * sum(best) <= 200


def test_a_correction_that_went_too_far_is_taken_back_in_part():
    """Above 180 bins everything takes 50% more: the first correction goes to 133, and 180 would do."""
    space = estimated([400, 400], 200)
    meter = Meter(space, lambda bin_counts: bin_counts.sum() * (1.5 if bin_counts.sum() > 180 else 1.0))
    best, _ = picked(space, [[100, 100]], min_usage=0.99, settle=by_trend, meter=meter)
    assert 170 <= sum(best) <= 180


def test_a_scored_width_that_keeps_the_latency_is_taken_where_no_correction_helps():
    """All but one are too slow by far, and the smallest as well."""
    space = estimated([9, 9], 10)
    slow = {(3, 4): 9.0}
    meter = Meter(space, lambda bin_counts: slow.get(tuple(bin_counts.tolist()), 1000.0))
    rows = [[5, 5], [5, 4], [3, 4], [5, 1]]
    best, exact = picked(space, rows, meter=meter, settle=lambda within: np.array([[5, 5]]))
    assert best == exact[-1] == (3, 4)
    slow = {(1, 1): 9.0}  # nobody has proposed it
    meter = Meter(space, lambda bin_counts: slow.get(tuple(bin_counts.tolist()), 1000.0))
    assert picked(space, rows, meter=meter)[0] == (1, 1)


def test_an_error_comes_when_all_scored_widths_and_the_smallest_have_missed_the_latency():
    space = estimated([9, 9], 10)
    measured = []

    def slow(bin_counts):
        measured.append(tuple(bin_counts.tolist()))
        return 12.0

    message = (
        r"keep the budget 'b' when it is measured, but none of \d+ does, and the smallest subnet takes 12 ms, where 10 "
        "ms are allowed; raise the budget"
    )
    with pytest.raises(BudgetError, match=message):
        picked(space, [[5, 5], [5, 4], [2, 2]], meter=Meter(space, slow))
    assert {(5, 5), (5, 4), (2, 2), (1, 1)} <= set(measured)
    assert len(measured) == len(set(measured))  # each once


def true_ms(bin_counts):
    """Milliseconds of a runtime with steps: up to 5% more or less than the estimate of a millisecond a bin."""
    return float(sum(bin_counts)) * (1 + 0.05 * np.sin(bin_counts[0]))


def noisy_picks(noise, is_measured_anew, n=80):
    """True shares of the cap that picks take whose measurements have noise of a known size."""
    space, shares = estimated([60, 60], 80), []
    for seed in range(n):
        rng = np.random.default_rng(seed)

        def measure(bin_counts, rng=rng):
            return true_ms(bin_counts) * np.exp(noise * rng.standard_normal())

        once = cache(measure)  # as if a single measurement of a pick decided
        meter = Meter(space, measure if is_measured_anew else lambda row, once=once: once(tuple(row.tolist())))
        best, _ = picked(space, space.sample(6, rng), min_usage=0.95, meter=meter)
        shares.append(true_ms(best) / 80)
    return np.array(shares)


@pytest.mark.parametrize("noise", [0.05, 0.1])
def test_picks_keep_their_cap_although_measurements_are_noisy(noise):
    shares = noisy_picks(noise, is_measured_anew=True)
    assert (shares <= 1).mean() >= 0.95
    assert np.median(shares) >= 1 - 2 * max(noise, 0.05)  # not by picks that are far below the cap
    assert (noisy_picks(noise, is_measured_anew=False) <= 1).mean() <= 0.8


def test_a_pick_above_its_cap_is_measured_no_further():
    times = {(5, 5): [9.0, 9.9, 10.1], (4, 6): [11.0], (3, 4): [7.0, 9.0, 8.0, 9.5, 8.2, 8.1]}
    meter = Meter(estimated([9, 9], 10), lambda bin_counts: times[tuple(bin_counts)].pop(0))
    assert [meter.keeps(np.array(row)) for row in list(times)] == [False, False, True]
    assert [len(left) for left in times.values()] == [0, 0, 0]
    assert meter.measured == {(5, 5): 10.1, (4, 6): 11.0, (3, 4): 8.2}  # without the first of the last
    assert meter.cautious == {(5, 5): 10.1, (4, 6): 11.0, (3, 4): 9.5}
    assert meter.keeps(np.array([3, 4]))  # as judged before
