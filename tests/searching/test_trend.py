"""The search by trend: what it scores, what it fits, and what it settles on."""

import numpy as np
import pytest

from cafenet.errors import ScoringError
from cafenet.searching.algorithms.trend import Trend, drawn_together, fit_worths, sample_balanced
from cafenet.searching.algorithms.trend_optimum import best_of_trend
from cafenet.searching.budget import Budget, Cap
from cafenet.searching.feasible import Feasible
from cafenet.space.bins import Bins, GroupBins
from tests.helpers.small_search import binned, every_vector, feasible

WORTHS = np.array([2.0, 1.0, 0.5, 1.5])


def settled(algorithm, space, value, seed=0):
    """The rows that a search settles on."""
    search = algorithm.proposals(space, np.random.default_rng(seed))
    proposal = next(search)
    try:
        while True:
            proposal = search.send(value(proposal.bin_counts))
    except StopIteration as end:
        return end.value(space)


def law(bin_counts, worths=WORTHS):
    return np.log(bin_counts) @ worths


def test_the_example_of_the_module():
    """Worth 2 and 1 at the same price: two channels of three for the first."""
    space = feasible([8, 8], 9)
    assert settled(Trend(), space, lambda bin_counts: law(bin_counts, np.array([2.0, 1.0])))[0].tolist() == [6, 3]


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_of_the_law_is_settled_on_although_scores_are_noisy(seed):
    space = feasible([24, 24, 24, 24], 40)
    rows = every_vector([24] * 4)
    best = law(rows[space.fits(rows)]).max()
    rng = np.random.default_rng(seed)
    found, seen = [], []

    def noisy(bin_counts):
        values = law(bin_counts) + 0.3 * rng.standard_normal(len(bin_counts))
        seen.append(law(bin_counts)[values.argmax()])
        return values

    found = settled(Trend(samples=300), space, noisy, seed)
    regret, regret_of_luckiest = best - law(found[0][None])[0], best - seen[0]
    assert regret < 0.1
    assert regret < 0.7 * regret_of_luckiest


@pytest.mark.parametrize(("trust", "best"), [(1.0, [6, 3]), (0.5, [5, 4]), (0.0, [4, 5])])
def test_less_trust_gives_groups_more_equal_widths(trust, best):
    """Two groups at the same price with 9 channels: worth 2 and 1 gives 6 and 3, no trust 4 and 5 or 5 and 4."""
    space = feasible([8, 8], 9)
    found = settled(Trend(trust=trust), space, lambda bin_counts: law(bin_counts, np.array([2.0, 1.0])))[0].tolist()
    assert found == best or (trust == 0 and sorted(found) == sorted(best))


def test_worths_are_drawn_together_around_their_mean():
    assert drawn_together(np.array([3.0, 1.0]), 0.5).tolist() == [2.5, 1.5]


def test_what_it_settles_on_comes_best_first_and_fits():
    space = feasible([24, 24, 24, 24], 40)
    rows = best_of_trend(space, WORTHS, 4.0)
    values = law(rows)
    assert len(rows) == len(np.unique(rows, axis=0)) == 20
    assert (np.diff(values) <= 1e-9).all()
    assert space.fits(rows).all()
    assert space.usage(rows)[0] > 0.97


def test_scored_widths_use_parts_of_the_budget_and_lie_about_one_share():
    bins = binned(200, 100, 50, 200)
    costs = {"flops": lambda widths: widths[:, :-1].astype(float).prod(axis=1) ** (1 / 3) + widths[:, -1]}
    space = Feasible(bins, costs, Budget("x", (Cap("flops", 120.0),)))
    rows = sample_balanced(space, 400, 0.2, np.random.default_rng(0))
    usage = space.usage(rows)
    assert usage.max() <= 1
    assert np.quantile(usage, [0.1, 0.5, 0.9]) == pytest.approx([0.64, 0.8, 0.96], abs=0.04)
    logarithms = np.log(rows / np.array([200, 100, 50, 200]))
    apart = (logarithms - logarithms.mean(axis=1, keepdims=True)).std(axis=1, ddof=1).mean()
    assert apart == pytest.approx(0.2, rel=0.15)


def test_worths_are_found_and_never_far_below_the_mean():
    rng = np.random.default_rng(0)
    logarithms = rng.standard_normal((500, 4))
    found = fit_worths(logarithms, 3 + logarithms @ WORTHS + 0.01 * rng.standard_normal(500))
    assert found == pytest.approx(WORTHS / 1.05, rel=0.05)  # a ridge of 5%
    odd = fit_worths(logarithms, logarithms @ np.array([2.0, 1.0, -1.0, 2.0]))
    assert odd[2] == pytest.approx(0.1 * 4 / 4 / 1.05, rel=0.1)


@pytest.mark.parametrize("value", [lambda bin_counts: -law(bin_counts), lambda bin_counts: np.zeros(len(bin_counts))])
def test_scores_that_say_nothing_lead_to_balanced_widths(value):
    rows = settled(Trend(), feasible([24, 24, 24, 24], 40), value)
    assert rows[0].tolist() == [10, 10, 10, 10]


@pytest.mark.parametrize(("farthest", "best"), [(1.0, [20, 20]), (2.0, [30, 10]), (4.0, [35, 5])])
def test_widths_stay_within_some_times_of_uniform_ones(farthest, best):
    rows = best_of_trend(feasible([64, 64], 40), np.array([1.0, 0.01]), farthest)
    assert rows[0].tolist() == best  # uniform is 20 and 20


def test_with_few_bins_rounding_of_uniform_widths_is_allowed_for():
    """Uniform is 1 of 4 bins, 1.4 before rounding; twice that is 3, not 2."""
    space = feasible([4, 4, 4, 4], 7)
    assert space.uniform().tolist() == [1, 1, 1, 1]
    rows = best_of_trend(space, np.array([1.0, 0.01, 0.01, 0.01]), 2.0)
    assert rows[0, 0] == 3


def test_the_limit_is_on_channels_whatever_the_first_bin_holds():
    """Uniform is 24 of 64 channels; half of that are 12, in a first bin of 8 channels and bins of 4, and twice 48."""
    bins = Bins((GroupBins("a", 64, 8, 4), GroupBins("b", 64, 8, 4)))
    space = Feasible(bins, {"flops": lambda widths: widths.sum(axis=-1)}, Budget("b", (Cap("flops", 48),)))
    assert bins.widths(space.uniform()).tolist() == [24, 24]
    rows = best_of_trend(space, np.array([1.0, 0.01]), 2.0)
    assert bins.widths(rows[0]).tolist() == [36, 12]


def test_scores_on_the_way_say_how_far_the_fit_is_right():
    """All scores about uniform widths say that the second group is worth little; much less of it is fatal."""
    space = feasible([64, 64], 40)

    def easy(bin_counts):
        return np.log(bin_counts[:, 0]) + 0.01 * np.log(bin_counts[:, 1])

    def cliff(bin_counts):
        return easy(bin_counts) - 3.0 * (bin_counts[:, 1] < 11)

    scored = sample_balanced(space, 300, 0.05, np.random.default_rng(0))
    assert (scored[:, 1] >= 11).all()
    assert settled(Trend(spread=0.05), space, cliff)[0].tolist() == [27, 13]
    assert settled(Trend(spread=0.05), space, easy)[0].tolist() == [35, 5]
    assert settled(Trend(spread=0.05, farthest=2.0), space, easy)[0].tolist() == [30, 10]
    assert settled(Trend(spread=0.05, farthest=1.0), space, easy)[0].tolist() == [20, 20]


def test_where_only_the_smallest_subnet_fits_it_is_scored():
    rows = sample_balanced(feasible([2000, 2000], 2), 50, 3.0, np.random.default_rng(0))
    assert (rows == 1).all()


def test_a_budget_that_allows_everything():
    assert settled(Trend(), feasible([3, 3], 6), lambda bin_counts: law(bin_counts, np.ones(2)))[0].tolist() == [3, 3]


def test_a_space_of_one_vector():
    assert settled(Trend(), feasible([1, 1], 2), lambda bin_counts: np.ones(len(bin_counts))).tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples must be a whole number of at least 1"),
        ({"spread": 0.0}, "spread must be a number above 0"),
        ({"farthest": 0.5}, "farthest must be a number of at least 1, but is 0.5"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ScoringError, match=message):
        Trend(**options)
