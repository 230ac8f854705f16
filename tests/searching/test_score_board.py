"""Scoring what is proposed: every width once, the right bar, and work that is shared."""

import re
import threading
import time
import warnings

import numpy as np
import pytest

from cafenet.scoring.scorer import Score
from cafenet.searching.algorithms.base import Proposal
from cafenet.searching.score_board import Contest
from cafenet.searching.store.scored_width import ScoredWidth
from cafenet.searching.store.trials import TrialStore
from tests.helpers.small_search import TableScorer, binned

BINS = binned(9, 9)


class Recorder(TableScorer):
    """Notes the bar of each score; scores below 0.2 are dropped where there is a bar."""

    def __init__(self, value=lambda bin_counts: bin_counts.sum() / 20, **options):
        super().__init__(value, **options)
        self.bars = []

    def score(self, bin_counts, bar=None, *, exact=False):
        self.bars.append(None if bar is None else bar.value)
        score = super().score(bin_counts, bar, exact=exact)
        if bar is not None and score.value < 0.2:
            return Score(score.value, 0, self._num_candidates, 10, False, 0.01, None)
        return score


def contest_of(scorer, store=None, search="search", **options):
    store = TrialStore(None, BINS, {}) if store is None else store
    return Contest(scorer, store, lambda bin_counts: {"flops": float(bin_counts.sum())}, search, **options)


def propose(*rows, num_kept=2, **options):
    return Proposal(np.array(rows), num_kept, **options)


def test_scores_come_in_the_order_of_the_rows():
    assert contest_of(Recorder()).values(propose([9, 9], [1, 1], [3, 4])).tolist() == [0.9, 0.1, 0.35]


def test_the_bar_is_the_last_of_the_best_that_matter():
    scorer = Recorder()
    contest = contest_of(scorer)
    contest.values(propose([4, 4], [6, 6], [1, 1], [5, 5], [7, 7]))
    # two are kept: there is no bar before there are two, then it is the second best so far
    assert scorer.bars == [None, None, 0.4, 0.4, 0.5]
    contest.values(propose([8, 8], [9, 9], num_kept=1))
    assert scorer.bars[5:] == [0.7, 0.8]


def test_a_contest_of_its_own_begins_without_a_bar():
    scorer = Recorder()
    contest = contest_of(scorer)
    contest.values(propose([9, 9], [8, 8]))
    contest.values(propose([4, 4], [6, 6], [5, 5], num_kept=1, is_own_contest=True))
    assert scorer.bars[2:] == [None, 0.4, 0.6]


def test_dropped_widths_are_no_bar():
    scorer = Recorder()
    contest = contest_of(scorer)
    contest.values(propose([4, 4], [1, 1], [1, 2], [5, 5], num_kept=1))
    assert [each.score.is_complete for each in contest.seen.values()] == [True, False, False, True]
    contest.values(propose([2, 2], num_kept=4))
    assert scorer.bars[-1] is None


def test_no_width_is_scored_twice():
    scorer = Recorder()
    contest = contest_of(scorer)
    first = contest.values(propose([4, 4], [6, 6], [4, 4]))
    again = contest.values(propose([6, 6], [4, 4], [1, 1]))
    assert first.tolist() == [0.4, 0.6, 0.4]
    assert again.tolist() == [0.6, 0.4, 0.1]
    assert [bin_counts for bin_counts, _ in scorer.asked] == [(4, 4), (6, 6), (1, 1)]
    assert contest.num_scored == len(contest.seen) == 3


def test_another_search_on_the_store_scores_nothing_twice():
    store, first, second = TrialStore(None, BINS, {}), Recorder(), Recorder()
    contest_of(first, store, "first").values(propose([4, 4], [6, 6], [5, 5]))
    contest = contest_of(second, store, "second")
    assert contest.values(propose([5, 5], [7, 7], [4, 4])).tolist() == [0.5, 0.7, 0.4]
    assert second.asked == [((7, 7), False)]
    assert (contest.num_scored, len(contest.seen)) == (1, 3)


def dropped(bin_counts, value, search):
    score = Score(value, 0, 3, 10, False, 0.02, None)
    return ScoredWidth(bin_counts, score, {"flops": 1.0}, search, "", 0.1, False)


@pytest.mark.parametrize(
    ("search", "bar", "is_scored_again"),
    [
        ("other", [4, 4], False),  # 0.34 + 0.02 < 0.4
        ("other", [3, 4], True),  # 0.34 + 0.02 >= 0.35: it might not be dropped here
        ("other", None, True),
        ("mine", [3, 4], False),
        ("mine", None, False),
    ],
)
def test_a_width_that_was_dropped_is_scored_again_only_where_it_might_matter(search, bar, is_scored_again):
    store, scorer = TrialStore(None, BINS, {}), Recorder()
    store.add(dropped((2, 3), 0.34, search))
    contest = contest_of(scorer, store, "mine")
    if bar is not None:
        contest.values(propose(bar))
    value = contest.values(propose([2, 3], num_kept=1))[0]
    assert (((2, 3), False) in scorer.asked) == is_scored_again
    assert value == (0.25 if is_scored_again else 0.34)


def test_exact_scores_are_kept_too():
    store, scorer = TrialStore(None, BINS, {}), Recorder()
    contest = contest_of(scorer, store, "first")
    contest.values(propose([4, 4]))
    assert contest.exact([np.array([4, 4])])[0].is_exact
    assert contest.exact([np.array([4, 4])])[0].label == "final"
    assert scorer.asked == [((4, 4), False), ((4, 4), True)]
    assert scorer.bars[1] is None
    contest.exact([np.array([5, 5])])[0]
    other = contest_of(scorer, store, "second")
    assert other.exact([np.array([5, 5])])[0].score.value == 0.5
    assert other.values(propose([5, 5])).tolist() == [0.5]
    assert len(scorer.asked) == 3


def test_a_width_of_one_candidate_is_exact_at_once():
    scorer = Recorder(num_candidates=1)
    contest = contest_of(scorer)
    contest.values(propose([4, 4], [5, 5], [1, 1]))
    assert contest.exact([np.array([4, 4])])[0].score.value == 0.4
    assert len(scorer.asked) == 3
    contest.exact([np.array([1, 1])])[0]  # was dropped
    assert scorer.asked[3:] == [((1, 1), True)]


def test_what_is_scored_is_told_with_its_costs():
    told = []
    contest = contest_of(Recorder(), on_scored=told.append)
    contest.values(propose([4, 4], [5, 5], label="iteration 1"))
    contest.exact([np.array([4, 4])])[0]
    assert [(each.bin_counts, each.label, each.is_exact) for each in told] == [
        ((4, 4), "iteration 1", False),
        ((5, 5), "iteration 1", False),
        ((4, 4), "final", True),
    ]
    assert told[1].costs == {"flops": 10.0}
    assert told[1].search == "search"


def test_two_workers_share_a_proposal(tmp_path):
    scorers, values, contests = [], {}, []

    def work(number):
        scorer = TableScorer(lambda bin_counts: time.sleep(0.005) or bin_counts.sum() / 20)
        store = TrialStore(tmp_path / "trials.journal", BINS, {}, is_shared=True)
        contest = contest_of(scorer, store)
        scorers.append(scorer)
        contests.append(contest)
        rows = [[first, second] for first in range(1, 9) for second in range(1, 4)]
        values[number] = contest.values(propose(*rows)).tolist()
        contest.exact([np.array([1, 1])])[0]

    TrialStore(tmp_path / "trials.journal", BINS, {})
    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asked = [each for scorer in scorers for each in scorer.asked]
    assert len(asked) == len(set(asked)) == 25
    assert values[0] == values[1] == [(first + second) / 20 for first in range(1, 9) for second in range(1, 4)]
    assert all(scorer.asked for scorer in scorers)
    assert contests[0].num_scored + contests[1].num_scored == 25


def test_a_score_that_fails_is_not_claimed_for_ever(tmp_path):
    def fails(bin_counts):
        raise KeyboardInterrupt

    left, right = (TrialStore(tmp_path / "trials.journal", BINS, {}, is_shared=True) for _ in range(2))
    with pytest.raises(KeyboardInterrupt):
        contest_of(TableScorer(fails), left).values(propose([4, 4]))
    assert contest_of(Recorder(), right).values(propose([4, 4])).tolist() == [0.4]


def test_a_score_that_came_just_before_the_claim_is_taken(tmp_path):
    left, right = (TrialStore(tmp_path / "trials.journal", BINS, {}, is_shared=True) for _ in range(2))
    scorer = Recorder()
    first, second = contest_of(Recorder(), left), contest_of(scorer, right)
    first.values(propose([4, 4]))
    assert second.values(propose([4, 4])).tolist() == [0.4]  # `right` has not looked since it was opened
    first.exact([np.array([5, 5])])[0]
    assert second.exact([np.array([5, 5])])[0].score.value == 0.5
    assert scorer.asked == []
    assert right.claim(np.array([4, 4])) is not None


def rows(number):
    return [[first, second] for first in range(1, 10) for second in range(1, 10)][:number]


@pytest.mark.parametrize(
    ("best", "chance", "number", "warns"),
    [
        (0.25, 0.25, 12, True),
        (0.33, 0.25, 12, True),  # noise of 100 examples: 2 x 0.043
        (0.35, 0.25, 12, False),
        (0.1, 0.25, 12, True),
        (0.25, 0.25, 9, False),  # too few to judge
        (0.25, None, 12, False),
    ],
)
def test_scores_that_look_like_chance_are_warned_of_once(best, chance, number, warns):
    contest = contest_of(TableScorer(lambda bin_counts: best - 0.001 * bin_counts.sum() + 0.002, chance))
    message = r"scores look like chance: the best of 12 widths reaches .*, and always answering the most frequent"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            contest.values(propose(*rows(number)))
    assert len(caught) == (1 if warns else 0)
    assert all(re.match(message, str(each.message)) for each in caught)
