"""What every algorithm must do, and what each promises on its own."""

import itertools

import numpy as np
import pytest

from cafenet.errors import ScoringError
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.algorithms.gaussian_process import draw_promising, predict
from cafenet.searching.algorithms.greedy import Greedy
from cafenet.searching.algorithms.random_search import RandomSearch
from cafenet.searching.algorithms.trend import Trend
from tests.helpers.small_search import every_vector, feasible

EVOLUTIONS = [Evolution(), Evolution(screened=1)]
ALGORITHMS = [*EVOLUTIONS, RandomSearch(), Greedy(), Trend()]
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
every_sampling_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS[:3], ids=repr)


def gain(bin_counts):
    """Monotone and separable, with less and less to gain from each bin; no two vectors are alike."""
    weights = 1 + np.arange(bin_counts.shape[-1]) * 0.31
    return (weights * np.log1p(bin_counts)).sum(axis=-1)


def proposed(algorithm, space, value=gain, seed=0, most=3000):
    """All proposals of a search, and the values that it was told."""
    search = algorithm.proposals(space, np.random.default_rng(seed))
    proposals, values = [], []
    proposal = next(search)
    try:
        while sum(map(len, values)) < most:
            proposals.append(proposal)
            values.append(np.asarray(value(proposal.bin_counts), dtype=float))
            proposal = search.send(values[-1])
    except StopIteration:
        return proposals, values
    raise AssertionError(f"no end after {most} widths")


def rows_of(proposals):
    return np.concatenate([proposal.bin_counts for proposal in proposals])


def found(algorithm, space, value=gain, seed=0):
    """The best vector within the budget that was proposed, and its value."""
    rows = rows_of(proposed(algorithm, space, value, seed)[0])
    fitting = rows[space.fits(rows)]
    return tuple(fitting[np.argmax(value(fitting))].tolist())


def optimum(space, value=gain):
    rows = every_vector(space.num_bins)
    fitting = rows[space.fits(rows)]
    return tuple(fitting[np.argmax(value(fitting))].tolist())


SPACES = {
    "even": lambda: feasible([6, 6, 6], 9),
    "prices": lambda: feasible([5, 8, 3, 4], 25, [1, 2, 3, 1.5]),
    "two caps": lambda: feasible([6, 5, 6], 22, [3, 2, 1], params=([1, 2, 4], 26)),
    "fixed groups": lambda: feasible([1, 7, 1, 7], 9),
    "loose": lambda: feasible([4, 4, 4], 11.5),
    "tight": lambda: feasible([6, 6, 6], 4),
    "coarse": lambda: feasible([3, 3], 55, [10, 17]),
}
every_space = pytest.mark.parametrize("space", [make() for make in SPACES.values()], ids=SPACES.keys())


@every_space
@every_algorithm
def test_proposals_are_vectors_of_the_space(algorithm, space):
    proposals, _ = proposed(algorithm, space)
    for proposal in proposals:
        assert proposal.bin_counts.ndim == 2
        assert len(proposal.bin_counts) > 0
        assert np.issubdtype(proposal.bin_counts.dtype, np.integer)
        assert (proposal.bin_counts >= 1).all()
        assert (proposal.bin_counts <= space.num_bins).all()
        assert len(np.unique(proposal.bin_counts, axis=0)) == len(proposal.bin_counts)
        assert proposal.num_kept >= 1
        assert proposal.label


@every_space
@every_sampling_algorithm
def test_every_proposal_is_within_the_budget_and_new(algorithm, space):
    proposals, _ = proposed(algorithm, space)
    rows = rows_of(proposals)
    assert space.fits(rows).all()
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert len(rows) <= algorithm.num_widths(space)
    for row in rows[~space.in_band(rows)]:  # then no bin can be added
        grown = row + np.eye(len(row), dtype=int)
        assert not space.fits(grown[(grown <= space.num_bins).all(axis=1)]).any()


@every_space
@every_algorithm
def test_equal_seeds_give_equal_proposals(algorithm, space):
    first, again = (rows_of(proposed(algorithm, space, seed=3)[0]) for _ in range(2))
    assert np.array_equal(first, again)


@every_sampling_algorithm
def test_other_seeds_give_other_proposals(algorithm):
    space = feasible([9] * 6, 27)
    first, again, other = (
        next(algorithm.proposals(space, np.random.default_rng(seed))).bin_counts for seed in (3, 3, 4)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("seed", range(3))
@every_space
@every_sampling_algorithm
def test_the_optimum_of_a_small_space_is_found(algorithm, space, seed):
    assert found(algorithm, space, seed=seed) == optimum(space)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["even", "fixed groups", "loose", "tight"])
def test_greedy_finds_the_optimum_where_all_channels_cost_the_same(name, seed):
    space = SPACES[name]()
    assert found(Greedy(), space, seed=seed) == optimum(space)


@every_space
def test_greedy_comes_near_the_optimum_elsewhere(space):
    rows = every_vector(space.num_bins)
    values = gain(rows[space.fits(rows)])
    reached = gain(np.array(found(Greedy(), space)))
    assert (values > reached).mean() < 0.1


@pytest.mark.parametrize("algorithm", EVOLUTIONS, ids=repr)
def test_evolution_finds_the_optimum_of_a_space_that_it_cannot_see_whole(algorithm):
    space = feasible([8] * 5, 20, [1, 1.1, 1.2, 1.3, 1.4])
    rows = rows_of(proposed(algorithm, space)[0])
    assert len(rows) <= 2000 < space.fits(every_vector(space.num_bins)).sum()
    assert gain(rows).max() >= gain(np.array(optimum(space))) - 0.02


@pytest.mark.parametrize(("num_bins", "limit"), [([4, 4, 4], 3), ([4, 4, 4], 3.9), ([1, 1], 2), ([1], 1)])
@every_algorithm
def test_one_feasible_vector_is_proposed_and_that_is_all(algorithm, num_bins, limit):
    space = feasible(num_bins, limit)
    rows = rows_of(proposed(algorithm, space)[0])
    fitting = np.unique(rows[space.fits(rows)], axis=0)
    assert fitting.tolist() == [[1] * space.num_bins.size]


@pytest.mark.parametrize("algorithm", ALGORITHMS[:4], ids=repr)  # a trend proposes parts of the budget, and settles
def test_a_budget_that_allows_everything(algorithm):
    space = feasible([3, 3], 6)
    assert [3, 3] in rows_of(proposed(algorithm, space)[0]).tolist()


@every_algorithm
def test_all_caps_hold_at_once(algorithm):
    space = feasible([6] * 4, 40, [1, 2, 3, 4], params=([4, 3, 2, 1], 35))
    rows = rows_of(proposed(algorithm, space)[0])
    fitting = rows[space.fits(rows)]
    assert len(fitting) > 0
    assert (fitting @ [1, 2, 3, 4] <= 40).all()
    assert (fitting @ [4, 3, 2, 1] <= 35).all()
    if not isinstance(algorithm, Greedy):
        assert len(fitting) == len(rows)


@pytest.mark.parametrize(
    "value",
    [lambda bin_counts: np.full(len(bin_counts), 0.5), lambda bin_counts: 1e9 * gain(bin_counts)],
    ids=["flat", "huge"],
)
@every_algorithm
def test_scores_of_any_kind_lead_to_an_end(algorithm, value):
    proposals, _ = proposed(algorithm, feasible([5, 5, 5], 8), value)
    assert proposals


@every_algorithm
def test_a_name_and_a_number_for_progress(algorithm):
    space = feasible([9] * 5, 27)
    assert algorithm.name in ("evolution", "random", "greedy", "trend")
    assert 1 <= algorithm.num_widths(space) <= 2000


@pytest.mark.parametrize("screened", [1, 10])
def test_evolution_proposes_as_many_as_it_says(screened):
    algorithm = Evolution(population=12, iterations=6, num_parents=4, screened=screened)
    proposals, _ = proposed(algorithm, feasible([20] * 6, 60))
    assert [len(proposal.bin_counts) for proposal in proposals] == [12] * 6
    assert {proposal.num_kept for proposal in proposals} == {4}
    assert not any(proposal.is_own_contest for proposal in proposals)
    assert [proposal.label for proposal in proposals] == [f"iteration {number}" for number in range(1, 7)]
    assert algorithm.num_widths(feasible([20] * 6, 60)) == 72


@pytest.mark.parametrize("algorithm", [Evolution(iterations=15), Evolution(iterations=15, screened=1)], ids=repr)
def test_generations_get_better(algorithm):
    space = feasible([20] * 8, 80, np.linspace(1, 2, 8).tolist())
    _, values = proposed(algorithm, space)
    assert np.median(values[-1]) > np.quantile(values[0], 0.9)
    assert max(map(np.max, values[5:])) > max(map(np.max, values[1:5])) > np.max(values[0])


def test_screening_helps():
    """Where bins of one group count for the next, too, ten screened children are worth more than one that is not."""

    def value(bin_counts):
        return gain(bin_counts) + 0.02 * (bin_counts[:, 1:] * bin_counts[:, :-1]).sum(axis=1)

    spaces = [feasible([12] * 6, 36, np.linspace(1, 2, 6).tolist()) for _ in range(4)]
    reached = {
        screened: [
            np.max(np.concatenate(proposed(Evolution(iterations=5, screened=screened), space, value, seed)[1]))
            for seed, space in enumerate(spaces)
        ]
        for screened in (1, 10)
    }
    assert np.mean(reached[10]) > np.mean(reached[1])


def test_random_search_proposes_as_many_as_asked():
    proposals, _ = proposed(RandomSearch(samples=90), feasible([20] * 6, 60))
    assert [len(proposal.bin_counts) for proposal in proposals] == [40, 40, 10]
    assert RandomSearch(samples=90).num_widths(feasible([20] * 6, 60)) == 90


def test_random_search_goes_on_where_one_batch_brings_nothing_new():
    space = feasible([7, 7, 7], 12)
    maximal = {tuple(row) for row in every_vector([7, 7, 7]).tolist() if sum(row) == 12}
    assert {tuple(row) for row in rows_of(proposed(RandomSearch(), space)[0]).tolist()} >= maximal


def test_plain_evolution_drops_surplus_children_at_random():
    algorithm = Evolution(population=12, iterations=30, screened=1)
    proposals, _ = proposed(algorithm, feasible([20] * 4, 40), lambda bin_counts: np.zeros(len(bin_counts)))
    firsts = np.concatenate([proposal.bin_counts[:, 0] for proposal in proposals[1:]])
    lasts = np.concatenate([proposal.bin_counts[:, 3] for proposal in proposals[1:]])
    assert abs(firsts.mean() - lasts.mean()) < 1.5  # groups are alike; taking the first rows would favour small ones


def test_random_search_takes_no_notice_of_scores():
    space = feasible([9] * 4, 18)
    first, other = (proposed(RandomSearch(), space, value)[0] for value in (gain, lambda bin_counts: -gain(bin_counts)))
    assert np.array_equal(rows_of(first), rows_of(other))


def test_greedy_shrinks_one_group_a_step_from_full_width():
    space = feasible([6, 6, 6], 9)
    proposals, values = proposed(Greedy(exchanges=0), space)
    current = space.num_bins
    for proposal, scores in itertools.islice(zip(proposals, values, strict=True), len(proposals) - 1):
        smaller = current - proposal.bin_counts
        assert ((smaller > 0).sum(axis=1) == 1).all()
        assert (smaller >= 0).all()
        assert len(smaller) == (current > 1).sum()
        assert (smaller.sum(axis=1) == 1).all()  # 2% of 18 channels is less than one
        assert proposal.is_own_contest
        assert proposal.num_kept == 1
        current = proposal.bin_counts[np.argmax(scores)]
    assert proposals[-1].label == "budget met"
    assert proposals[-1].bin_counts.tolist() == [current.tolist()]
    assert current.sum() == 9


def test_greedy_takes_steps_of_the_size_that_it_says():
    space = feasible([50, 50], 60)
    proposals, _ = proposed(Greedy(step=0.1, exchanges=0), space)
    assert [len(proposal.bin_counts) for proposal in proposals] == [2, 2, 2, 2, 1]
    assert proposals[0].bin_counts.tolist() == [[40, 50], [50, 40]]


def test_greedy_exchanges_what_it_regrets():
    """Shrinking alone is misled here: above the budget the first group matters, within it the second one does."""

    def value(bin_counts):
        first, second = bin_counts.T
        return np.where(first + second > 10, first + 0.1 * second, 0.1 * first + second)

    space = feasible([10, 10], 10)
    alone, exchanged = (found(Greedy(step=0.05, exchanges=number), space, value) for number in (0, 5))
    values = [value(np.array([each]))[0] for each in (alone, exchanged)]
    assert values[1] > values[0]
    labels = [proposal.label for proposal in proposed(Greedy(step=0.05), space, value)[0]]
    assert "exchange 1" in labels


def test_greedy_exchanges_about_a_step():
    space = feasible([20, 20], 20)
    proposals, _ = proposed(Greedy(step=0.1), space)
    (budget_met,) = [proposal.bin_counts[0] for proposal in proposals if proposal.label == "budget met"]
    (exchange,) = [proposal.bin_counts for proposal in proposals if proposal.label == "exchange 1"]
    assert np.abs(exchange - budget_met).max() <= 4  # a tenth of 20 channels goes to one group, out of the other


def test_greedy_stops_when_exchanges_no_longer_help():
    proposals, values = proposed(Greedy(exchanges=50), feasible([6, 6, 6], 9))
    labels = [proposal.label for proposal in proposals]
    start = labels.index("budget met")
    bests = [scores.max() for scores in values[start:]]
    assert len(labels) - start < 50
    assert all(later > earlier for earlier, later in itertools.pairwise(bests[:-1]))
    assert bests[-1] <= max(bests[:-1])
    for proposal in proposals[start:]:
        assert feasible([6, 6, 6], 9).fits(proposal.bin_counts).all()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Evolution, {"population": 0}, "population must be a whole number of at least 1, but is 0"),
        (Evolution, {"iterations": 0}, "iterations must be a whole number of at least 1, but is 0"),
        (Evolution, {"num_parents": 0}, "num_parents must be a whole number of at least 1, but is 0"),
        (Evolution, {"screened": 0}, "screened must be a whole number of at least 1, but is 0"),
        (Evolution, {"mutation_rate": 0.0}, "mutation_rate must be a number above 0 and at most 1, but is 0.0"),
        (RandomSearch, {"samples": 0}, "samples must be a whole number of at least 1, but is 0"),
        (Greedy, {"step": 0.0}, "step must be a number above 0 and below 1, but is 0.0"),
        (Greedy, {"step": 1.0}, "step must be a number above 0 and below 1, but is 1.0"),
        (Greedy, {"exchanges": -1}, "exchanges must be a whole number of at least 0, but is -1"),
    ],
)
def test_wrong_options(kind, options, message):
    with pytest.raises(ScoringError, match=message):
        kind(**options)


def test_the_papers_settings_are_the_default():
    assert (Evolution().population, Evolution().iterations, RandomSearch().samples) == (40, 50, 2000)


def surface(rng, number):
    """Points and their values on a smooth surface."""
    points = rng.random((number, 3))
    return points, 2 * points[:, 0] - points[:, 1] + np.sin(3 * points[:, 2])


def test_the_regression_predicts_what_it_has_not_seen():
    rng = np.random.default_rng(0)
    (points, values), (others, truth) = surface(rng, 120), surface(rng, 50)
    mean, covariance = predict(points, values, others)
    assert np.abs(mean - truth).max() < 0.1 * values.std()
    assert (np.diag(covariance) > -1e-9).all()
    noisy, _ = predict(points, values + 0.3 * rng.standard_normal(120), others)
    assert np.abs(noisy - truth).mean() < 0.15


def test_the_regression_knows_where_it_is_unsure():
    rng = np.random.default_rng(0)
    points, values = surface(rng, 60)
    _, covariance = predict(points, values, np.concatenate([points[:1], points[:1] + 3]))
    assert covariance[1, 1] > 10 * covariance[0, 0]


def test_the_regression_sees_the_best_and_the_latest():
    rng = np.random.default_rng(0)
    points, values = surface(rng, 900)
    old = np.full((1, 3), 5.0)  # far away, best of all, and the oldest
    mean, _ = predict(np.concatenate([old, points]), np.concatenate([[50.0], values]), old)
    assert mean[0] == pytest.approx(50, rel=0.05)


def test_promising_rows_are_distinct_and_half_of_them_the_best_expected():
    rng = np.random.default_rng(0)
    (points, values), (others, _) = surface(rng, 80), surface(rng, 200)
    drawn = draw_promising(points, values, others, 20, rng)
    mean, _ = predict(points, values, others)
    assert len(set(drawn.tolist())) == 20
    assert drawn[:10].tolist() == np.argsort(-mean)[:10].tolist()
    assert mean[drawn].mean() > np.quantile(mean, 0.8)
