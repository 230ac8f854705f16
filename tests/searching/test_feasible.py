"""Vectors under a budget: never above it, as near as bins allow, spread over all groups, and cheap to find."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import cafenet
from cafenet.errors import BudgetError
from cafenet.searching.budget import Budget, Cap, parse_budget
from cafenet.searching.feasible import Feasible
from cafenet.space.bins import Bins, GroupBins, flops_sensitive_bins
from tests.helpers.networks import pooled


def rng(seed=0):
    return np.random.default_rng(seed)


def binned(*num_bins):
    """Groups of as many channels as bins."""
    return Bins(tuple(GroupBins(f"g{i}", n, 1, 1) for i, n in enumerate(num_bins)))


def weighted(*prices):
    """A cost that is so much per channel of each group."""
    return lambda widths: widths @ np.array(prices, dtype=float)


def feasible(num_bins, prices, limit, band=(0.95, 1.0)):
    return Feasible(binned(*num_bins), {"flops": weighted(*prices)}, Budget("b", (Cap("flops", limit),)), band)


def chained(widths):
    """The FLOPs of a chain of layers without biases: 3 x a + a x b + ... + z x 10."""
    sides = np.concatenate([np.full((len(widths), 1), 3), widths, np.full((len(widths), 1), 10)], axis=1)
    return (sides[:, 1:] * sides[:, :-1]).sum(axis=1)


def chain(share, num_bins=(4, 8, 16, 32, 64) * 5, **options):
    """A chain of 25 layers under a share of its cost."""
    full = chained(np.array([num_bins]))[0]
    return Feasible(binned(*num_bins), {"flops": chained}, Budget("b", (Cap("flops", share * full),)), **options)


def every_vector(num_bins):
    return np.array(list(itertools.product(*(range(1, n + 1) for n in num_bins))))


def grown(space, row):
    """The vectors with one bin more."""
    one = np.eye(row.size, dtype=np.int64)[row < space.num_bins]
    return row + one


# What fits


def test_a_cost_equal_to_its_limit_fits():
    rows = np.array([[2, 3], [3, 3], [1, 1]])
    assert feasible([4, 4], [1, 1], 5).usage(rows).tolist() == [1.0, 1.2, 0.4]
    assert feasible([4, 4], [1, 1], 5).fits(rows).tolist() == [True, False, True]
    assert feasible([4, 4], [1, 1], np.nextafter(5, 0)).fits(rows).tolist() == [False, False, True]
    assert feasible([4, 4], [1, 1], 5, band=(0.4, 0.9)).in_band(rows).tolist() == [False, False, True]


def test_every_cap_must_hold():
    costs = {"flops": weighted(1, 0), "params": weighted(0, 1), "latency_ms": weighted(9, 9)}
    both = Feasible(binned(4, 4), costs, Budget("b", (Cap("flops", 2), Cap("params", 4))))
    assert both.usage(np.array([[1, 4], [2, 1], [4, 4], [1, 1]])).tolist() == [1.0, 1.0, 2.0, 0.5]


def test_widths_are_priced_not_bins():
    bins = Bins((GroupBins("a", 10, 4, 3),))  # widths 4, 7, 10
    space = Feasible(bins, {"params": weighted(1)}, Budget("b", (Cap("params", 8),)))
    assert space.usage(np.array([[1], [2], [3]])).tolist() == [0.5, 0.875, 1.25]


def test_a_budget_below_the_smallest_subnet():
    costs = {"flops": weighted(1000, 234), "params": weighted(1, 1), "latency_ms": weighted(0.5, 1)}
    caps = (Cap("flops", 1000), Cap("params", 2), Cap("latency_ms", 1.25))
    with pytest.raises(BudgetError) as caught:
        Feasible(binned(4, 4), costs, Budget("1K+2 params+1.25ms", caps))
    assert str(caught.value) == (
        "`budget >= smallest subnet` must hold, but got a budget of 1,000 FLOPs, and the smallest subnet costs 1,234 "
        "FLOPs and got a budget of 1.25 ms, and the smallest subnet costs 1.5 ms; raise the budget "
        "'1K+2 params+1.25ms', lower min_width or use smaller bins (a lower beta)"
    )


def test_a_budget_of_the_smallest_subnet_leaves_only_that():
    space = feasible([4, 4], [1, 1], 2)
    assert space.sample(5, rng()).tolist() == [[1, 1]] * 5
    assert space.uniform().tolist() == [1, 1]


@pytest.mark.parametrize("band", [(-0.1, 1), (0.9, 0.8), (0.9, 1.1)])
def test_bad_bands(band):
    with pytest.raises(BudgetError, match=r"`0 <= low <= high <= 1` must hold for the band .* but got \("):
        feasible([4], [1], 3, band)


def test_a_cap_without_a_cost_function():
    with pytest.raises(BudgetError, match="every cap needs a cost function, but there is none for params"):
        Feasible(binned(4), {"flops": weighted(1)}, Budget("b", (Cap("params", 3),)))


# Sampling, mutating, crossing


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5, 0.75, 0.95])
def test_a_population_stays_in_the_band(share):
    space, generator = chain(share), rng()
    population = space.sample(300, generator)
    for _ in range(3):
        assert population.shape == (300, 25)
        assert population.dtype == np.int64
        assert ((population >= 1) & (population <= space.num_bins)).all()
        assert space.in_band(population).all()
        assert len(np.unique(population, axis=0)) > 250
        population = space.mutate(population, generator)
        assert space.in_band(population).all()
        population = space.crossover(population, population[::-1], generator)


@pytest.mark.parametrize("band", [(0.99, 1.0), (0.8, 0.9)])
def test_other_bands(band):
    space = chain(0.5, band=band)
    usage = space.usage(space.sample(300, rng()))
    assert band[0] <= usage.min() <= usage.max() <= band[1]


def test_the_same_generator_gives_the_same_vectors_and_inputs_are_left_alone():
    space = chain(0.5)
    parents = space.sample(20, rng(1))
    before = parents.copy()

    def run(seed):
        generator = rng(seed)
        rows = space.mutate(parents, generator), space.crossover(parents, parents[::-1], generator)
        return np.concatenate(
            [*rows, space.repair(parents + 0 * parents, generator), space.fill(parents[0], generator)]
        )

    assert np.array_equal(run(3), run(3))
    assert not np.array_equal(run(3), run(4))
    assert np.array_equal(parents, before)


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(chain(0.5), id="chain"),
        pytest.param(chain(0.2), id="chain at 20%"),
        pytest.param(feasible([6, 500, 20, 20, 40, 10, 300], [5, 0.1, 2, 3, 1, 6, 0.1], 85), id="500 bins at 25%"),
        pytest.param(feasible([6, 500, 20, 20, 40, 10, 300], [5, 0.1, 2, 3, 1, 6, 0.1], 245), id="500 bins at 80%"),
    ],
)
def test_samples_reach_both_ends_of_every_group_and_all_between(space):
    samples = space.sample(4000, rng())
    for group, n in enumerate(space.num_bins):
        smallest, largest = space.num_bins.copy(), np.ones_like(space.num_bins)
        smallest[group], largest[group] = 1, n
        assert space.usage(smallest[None])[0] > 1  # so that both ends can be in the band
        assert space.usage(largest[None])[0] < 0.95
        counts = np.bincount(samples[:, group], minlength=n + 1)[1:]
        assert counts[0] > 5
        assert counts[-1] > 5
        assert min(part.sum() for part in np.array_split(counts, min(n, 10))) > 5


def test_samples_are_not_all_near_the_uniform_ratio():
    space = chain(0.5)
    ratios = space.sample(2000, rng()) / space.num_bins
    uniform = (space.uniform() / space.num_bins)[space.num_bins > 8].mean()
    wide = ratios[:, space.num_bins > 8]
    assert (np.abs(wide - uniform) < 0.1).mean(axis=0).max() < 0.35
    assert wide.std(axis=0).min() > 0.2
    assert wide.std(axis=1).mean() > 0.2  # inside one vector, too
    inside = (wide > 2 / 16) & (wide < 14 / 16)
    assert inside.mean(axis=0).min() > 0.4  # all or nothing is no spread
    correlations = np.corrcoef(wide.T)[~np.eye(wide.shape[1], dtype=bool)]
    assert np.abs(correlations).max() < 0.4


def test_the_first_groups_are_treated_as_the_last():
    space = feasible([20] * 12, [1] * 12, 120)
    means = space.sample(3000, rng()).mean(axis=0)
    assert np.ptp(means) < 1.0
    assert means.mean() == pytest.approx(9.8, abs=0.3)


def test_bins_too_coarse_for_the_band_give_vectors_without_room_for_one_more():
    space = feasible([5, 5, 5], [7, 11, 13], 100, band=(0.999, 1.0))  # 7a + 11b + 13c = 100 has solutions, few
    samples = space.sample(500, rng())
    assert space.fits(samples).all()
    outside = samples[~space.in_band(samples)]
    assert len(outside) > 100
    assert not any(space.fits(grown(space, row)).any() for row in outside)
    assert len(np.unique(outside, axis=0)) > 5


def test_a_budget_above_the_full_model_gives_the_full_model():
    assert feasible([3, 4], [1, 1], 100).sample(3, rng()).tolist() == [[3, 4]] * 3


def test_mutation_changes_at_least_one_gene_and_few_where_the_rate_is_low():
    space = chain(0.5)
    parents = space.sample(500, rng())
    none, some, all_ = (space.mutate(parents, rng(1), rate) for rate in (0.0, 0.1, 1.0))
    for children in (none, some, all_):
        assert (children != parents).any(axis=1).all()
    changed = [(children != parents).sum(axis=1).mean() for children in (none, some, all_)]
    assert 1 < changed[0] < 5
    assert changed[0] < changed[1] < 10
    assert changed[2] > 22
    assert ((none != parents).mean(axis=0) > 0.02).all()  # any group may be the one


def test_a_mutated_gene_takes_any_other_value_and_the_others_make_room():
    space = feasible([4, 30, 30], [10, 1, 1], 50)
    parents = np.repeat([[2, 15, 15]], 3000, axis=0)
    children = space.mutate(parents, rng(), rate=0.0)
    assert space.in_band(children).all()
    first = np.bincount(children[:, 0], minlength=5)[1:]
    assert first.min() > 150  # 1/3 of the rows change the first gene, to 1, 3 or 4


def test_mutations_that_the_budget_undoes_are_replaced_by_samples():
    space = feasible([3, 2, 2], [1, 10, 10], 33, band=(1.0, 1.0))
    # A smaller first gene leaves room for itself only; (3, 2, 1) and (3, 1, 2) are all that there is in the band.
    children = space.mutate(np.repeat([[3, 2, 1]], 600, axis=0), rng(), rate=0.0)
    assert {tuple(row) for row in children.tolist()} == {(3, 2, 1), (3, 1, 2)}
    assert (children[:, 1] == 1).mean() == pytest.approx(2 / 3 + 1 / 3 * 1 / 2, abs=0.05)


def test_genes_that_cannot_vary_are_left_out_of_mutation():
    space = feasible([1, 8, 1, 8], [1, 1, 1, 1], 10)
    parents = np.repeat([[1, 4, 1, 4]], 200, axis=0)
    assert (space.mutate(parents, rng(), rate=0.0) != parents).any(axis=1).all()
    fixed = feasible([1, 1], [1, 1], 10)
    assert fixed.mutate(np.array([[1, 1]]), rng()).tolist() == [[1, 1]]


def test_children_have_the_genes_of_either_parent():
    space = feasible([9] * 6, [1] * 6, 54, band=(0.0, 1.0))  # all fits: nothing to repair
    mothers, fathers = np.full((400, 6), 2), np.full((400, 6), 7)
    children = space.crossover(mothers, fathers, rng())
    assert set(np.unique(children)) == {2, 7}
    assert (children == 2).mean(axis=0) == pytest.approx(np.full(6, 0.5), abs=0.1)


# Repair


def test_rows_in_the_band_stay():
    space = chain(0.5)
    rows = space.sample(100, rng())
    assert np.array_equal(space.repair(rows, rng(1)), rows)


def test_repair_only_adds_below_the_band_and_only_takes_above_it():
    space = chain(0.5)
    low, high = np.maximum(space.sample(100, rng()) // 3, 1), np.repeat(space.num_bins[None], 100, axis=0)
    raised, lowered = space.repair(low, rng(1)), space.repair(high, rng(1))
    assert space.in_band(raised).all()
    assert space.in_band(lowered).all()
    assert (raised >= low).all()
    assert (lowered <= high).all()


def test_kept_genes_move_last():
    space = chain(0.5)
    keep = np.zeros((200, 25), dtype=bool)
    keep[:, [4, 8]] = True
    over, under = np.repeat(space.num_bins[None], 200, axis=0), np.ones((200, 25), dtype=np.int64)
    for rows in (over, under):
        repaired = space.repair(rows, rng(), keep)
        assert np.array_equal(repaired[keep], rows[keep])
        assert (repaired != space.repair(rows, rng())).any()
    everything = np.ones_like(keep)
    assert space.in_band(space.repair(over, rng(), everything)).all()


def test_no_vector_is_drawn_again_and_again():
    """Some dozen pricings a vector, however narrow the budget: a rejection loop needs thousands."""
    for share in (0.03, 0.5, 0.97):
        rows = []
        space = chain(share)
        space.costs = {"flops": lambda widths, rows=rows: rows.append(len(widths)) or chained(widths)}
        space.sample(1000, rng())
        assert sum(rows) < 100 * 1000
        assert len(rows) < 500


# The uniform baseline


def test_uniform_is_the_widest_vector_of_one_factor():
    # 10 channels in bins of 3 are 4, 7 or 10 wide, 8 in bins of 2 are 2, 4, 6 or 8; cost = a + b
    bins = Bins((GroupBins("a", 10, 4, 3), GroupBins("b", 8, 2, 2)))
    widths = {}
    for limit in range(6, 19):
        space = Feasible(bins, {"flops": weighted(1, 1)}, Budget("b", (Cap("flops", limit),)))
        widths[limit] = tuple(bins.widths(space.uniform()).tolist())
    # factors at which groups round up: a 5.5/10 and 8.5/10, b 3/8, 5/8, 7/8
    assert widths == {
        **dict.fromkeys((6, 7), (4, 2)),
        **dict.fromkeys((8, 9, 10), (4, 4)),
        **dict.fromkeys((11, 12), (7, 4)),
        **dict.fromkeys((13, 14, 15), (7, 6)),
        **dict.fromkeys((16, 17), (10, 6)),
        18: (10, 8),
    }


def test_uniform_rounds_to_the_nearest_bin():
    # 10 channels that are 2 or 10 wide turn at a factor of 0.6, when 10 in bins of 1 are 6 wide
    bins = Bins((GroupBins("a", 10, 2, 8), GroupBins("b", 10, 1, 1)))
    widths = {}
    for limit in (7, 8, 15, 16, 17):
        space = Feasible(bins, {"flops": weighted(1, 1)}, Budget("b", (Cap("flops", limit),)))
        widths[limit] = tuple(bins.widths(space.uniform()).tolist())
    assert widths == {7: (2, 5), 8: (2, 6), 15: (2, 6), 16: (10, 6), 17: (10, 7)}


def test_uniform_of_equal_groups_has_equal_widths():
    # (3 x 20 + 9 x 20 x 20 + 20 x 10) / (3 x 40 + 9 x 40 x 40 + 40 x 10) = 0.2587
    assert chain(0.259, num_bins=(40,) * 10).uniform().tolist() == [20] * 10
    assert chain(0.258, num_bins=(40,) * 10).uniform().tolist() == [19] * 10


# Filling the last percent


def test_the_vector_itself_then_one_bin_then_swaps():
    space = feasible([9, 9, 9], [10, 1, 3], 100)
    # 10 x 8 + 1 x 4 + 3 x 5 = 99
    found = space.fill(np.array([8, 4, 5]), rng())
    assert found[:2].tolist() == [[8, 4, 5], [8, 5, 5]]
    assert space.fits(found).all()
    assert (space.usage(found) >= 0.99).all()
    assert len(np.unique(found, axis=0)) == len(found) == 8
    moved = np.abs(found - [8, 4, 5]).sum(axis=1)
    assert (np.diff(moved) >= 0).all()
    # 10 x 9 + 1 x 7 + 3 x 1 = 100, so from (9, 8, 1) = 101 nothing can be added; one less in the second is next
    assert space.fill(np.array([9, 8, 1]), rng(), low=1.0, n=1).tolist() == [[9, 7, 1]]
    # 10 x 8 + 9 + 3 x 3 = 98 is full but for the third, which costs 3: a swap of the second and third gives 100
    assert space.fill(np.array([8, 9, 3]), rng(), low=1.0, n=1).tolist() == [[8, 8, 4]]


def test_the_only_vector_of_a_small_space_is_found():
    space = feasible([30, 30, 30], [17, 23, 31], 1000)
    every = every_vector([30, 30, 30])
    exact = every[every @ [17, 23, 31] == 1000]
    assert len(exact) > 0
    found = space.fill(np.array([30, 1, 1]), rng(), low=1.0, n=100)
    assert sorted(found.tolist()) == sorted(exact.tolist())
    nothing = feasible([5, 5], [10, 20], 99)  # all costs are multiples of 10: 90 is next
    assert nothing.fill(np.array([1, 1]), rng()).shape == (0, 2)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_fill_finds_something_whenever_there_is_something(data):
    num_bins = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    prices = data.draw(st.lists(st.integers(1, 50), min_size=len(num_bins), max_size=len(num_bins)))
    least, most = sum(prices), int(np.dot(prices, num_bins))
    space = feasible(num_bins, prices, data.draw(st.integers(least, most)))
    every = every_vector(num_bins)
    usage = space.usage(every)
    start = every[data.draw(st.integers(0, len(every) - 1))]
    found = space.fill(start, rng(), low=0.99, n=8)
    possible = every[(usage >= 0.99) & (usage <= 1)]
    assert len(found) == min(8, len(possible))
    assert {tuple(row) for row in found} <= {tuple(row) for row in possible}
    nearest = np.sort(np.abs(possible - start).sum(axis=1))
    if len(found) and nearest[0] == 0:
        assert found[0].tolist() == start.tolist()


def test_the_last_percent_of_large_spaces():
    # Bins of 3% to 8% of the budget in 12 groups: more than 16 million vectors
    prices = [3.1, 3.7, 4.3, 4.9, 5.3, 5.9, 6.1, 6.7, 7.1, 7.3, 7.9, 8.3]
    space = feasible([4] * 12, prices, 150, band=(0.8, 1.0))
    assert space.bins.search_space_size > 200_000
    for seed in range(20):
        start = space.sample(1, rng(seed))[0]
        found = space.fill(start, rng(seed))
        assert len(found) == 8
        assert ((space.usage(found) >= 0.99) & space.fits(found)).all()


def test_the_nearest_vectors_of_large_spaces():
    start, prices = np.full(12, 2), [10] * 11 + [11]  # costs 242
    swaps = feasible([4] * 12, prices, 243).fill(start, rng(), low=1.0)
    assert len(swaps) == 8
    assert {tuple(np.sort(row - start)) for row in swaps} == {(-1, *[0] * 10, 1)}
    assert (swaps[:, 11] == 3).all()
    added = feasible([4] * 12, prices, 252).fill(start, rng(), low=1.0)
    assert len(added) == 8
    assert {tuple(np.sort(row - start)) for row in added} == {(*[0] * 11, 1)}
    bin_counts = feasible([4] * 12, prices, 232).fill(start, rng(), low=1.0)
    assert {tuple(np.sort(row - start)) for row in bin_counts[:1]} == {(-1, *[0] * 11)}


def test_many_groups_that_cannot_vary():
    num_bins = [1] * 70 + [3] * 3
    space = feasible(num_bins, [1] * 70 + [5, 6, 7], 100)
    assert space.fill(np.ones(73, dtype=np.int64), rng(), n=50).tolist() != []


# Real networks


class Net(nn.Module):
    """A stem and blocks of a convolution, or of a narrow and a depthwise one around which the input is added."""

    def __init__(self, stem, blocks):
        super().__init__()
        self.stem, channels = nn.Conv2d(3, stem, 3, padding=1), stem
        self.blocks = nn.ModuleList()
        for width, residual in blocks:
            if residual:
                inner = [nn.Conv2d(channels, width, 1), nn.Conv2d(width, width, 3, padding=1, groups=width)]
                self.blocks.append(nn.Sequential(*inner, nn.BatchNorm2d(width), nn.Conv2d(width, channels, 1)))
            else:
                self.blocks.append(nn.Conv2d(channels, width, 3, padding=1))
                channels = width
        self.residual = [residual for _, residual in blocks]
        self.head = nn.Linear(channels, 4)

    def forward(self, x):
        x = self.stem(x).relu()
        for block, residual in zip(self.blocks, self.residual, strict=True):
            x = x + block(x) if residual else block(x).relu()
        return self.head(pooled(x))


def counted(space, widths):
    """FLOPs and params of the extracted model."""
    slim = space.extract(widths.tolist()).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        slim(torch.zeros(1, 3, 6, 6))
    return counter.get_total_flops() / 2, sum(parameter.numel() for parameter in slim.parameters())


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(
    stem=st.integers(2, 12),
    blocks=st.lists(st.tuples(st.integers(2, 16), st.booleans()), max_size=5),
    flops=st.integers(5, 99),
    params=st.none() | st.integers(5, 99),
    beta=st.sampled_from([0.5, 1, 3]),
    seed=st.integers(0, 9),
)
def test_every_vector_meets_every_cap_as_counted_on_the_extracted_model(stem, blocks, flops, params, beta, seed):
    space = cafenet.trace(Net(stem, blocks), torch.zeros(1, 3, 6, 6))
    bins = flops_sensitive_bins(space, beta)
    limits = flops / 100 * space.flops(), (params or 100) / 100 * space.params()
    smallest = bins.widths(np.ones_like(bins.num_bins))
    budget = parse_budget(f"{flops}%" + (f"+{params}% params" if params else ""), space)
    costs = {"flops": space.flops, "params": space.params}
    if any(cost > limit for cost, limit in zip(counted(space, smallest), limits, strict=True)):
        with pytest.raises(BudgetError, match="smallest subnet costs"):
            Feasible(bins, costs, budget)
        return
    chosen, generator = Feasible(bins, costs, budget), rng(seed)
    parents = chosen.sample(40, generator)
    children = chosen.mutate(parents, generator, 0.3)
    crossed = chosen.crossover(parents, children, generator)
    results = np.concatenate([parents, children, crossed, chosen.fill(parents[0], generator), [chosen.uniform()]])
    assert chosen.fits(results).all()
    for row in parents[~chosen.in_band(parents)]:
        assert not chosen.fits(grown(chosen, row)).any()
    for row in results[[0, 40, 80, -2, -1]]:
        cost = counted(space, bins.widths(row))
        assert cost[0] <= limits[0]
        assert cost[1] <= limits[1]
        assert max(cost[0] / limits[0], cost[1] / limits[1] if params else 0) == pytest.approx(
            chosen.usage(row[None])[0]
        )
