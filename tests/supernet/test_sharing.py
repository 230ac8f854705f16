"""Which bins stand for a width: the zone, its edges, and what all assignments of a width have in common."""

import itertools
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cafenet.errors import BinError
from cafenet.space.bins import flops_sensitive_bins, uniform_bins
from cafenet.supernet.sharing import (
    Bilateral,
    BinnedSpace,
    LocallyFree,
    assigned_bins,
    check_sharing,
    offset_sets,
    sharing_degree,
)
from cafenet.supernet.supernet import Supernet
from tests.helpers.small_training import Gated, Plain, Residual, built, channels_of, traced


def assignments(bin_count: int, num_bins: int, r: int) -> list[tuple[int, ...]]:
    """All distinct assignments of a width in a group, in the order of their offset_sets."""
    return list(dict.fromkeys(assigned_bins(bin_count, num_bins, r, offsets) for offsets in offset_sets(r)))


def test_inside_two_of_three_bins_around_the_width_are_free():
    # bins 1 to 3 are the base of width 5; of 4, 5 and 6 two are taken
    assert assignments(5, 8, r=1) == [(1, 2, 3, 4, 5), (1, 2, 3, 4, 6), (1, 2, 3, 5, 6)]


@pytest.mark.parametrize(
    ("bin_count", "expected"),
    [
        (1, [(1,)]),
        (2, [(1, 2), (1, 3)]),  # {2, 3} would drop bin 1, which holds the rest of the division
        (3, [(1, 2, 3), (1, 2, 4), (1, 3, 4)]),
        (4, [(1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 4, 5)]),
        (5, [(1, 2, 3, 4, 5)]),
    ],
)
def test_edges_of_five_bins_with_r_1(bin_count, expected):
    assert assignments(bin_count, 5, r=1) == expected


def test_an_offset_outside_becomes_the_nearest_free_bin_inside():
    # r=2, c=4 of 5: base {1}; offsets (0, 1, 2) want 4, 5, 6; 6 becomes 3, the nearest that is free
    assert assigned_bins(4, 5, 2, (0, 1, 2)) == (1, 3, 4, 5)
    # c=2 of 5: offsets (-2, 0, 2) want 0, 2, 4; 0 becomes 3 beside base 1, and 3 and 4 are too much
    assert assigned_bins(2, 5, 2, (-2, 0, 2)) == (1, 2)


@pytest.mark.parametrize(("r", "count"), [(0, 1), (1, 3), (2, 10), (3, 35), (4, 126)])
def test_numbers_of_candidates_inside(r, count):
    assert len(offset_sets(r)) == LocallyFree(r).num_offset_sets == count
    assert len(assignments(10, 20, r)) == count  # C(2r+1, r+1)


@pytest.mark.parametrize("bin_count", range(1, 9))
def test_r_0_is_the_leftmost_pattern(bin_count):
    assert assignments(bin_count, 8, r=0) == [tuple(range(1, bin_count + 1))]


@pytest.mark.parametrize("r", [0, 1, 2, 3, 6])
def test_every_assignment_of_every_small_group_has_its_number_of_bins(r):
    for num_bins in range(1, 10):
        for bin_count in range(1, num_bins + 1):
            found = [assigned_bins(bin_count, num_bins, r, offsets) for offsets in offset_sets(r)]
            for bins in found:
                assert len(set(bins)) == len(bins) == bin_count
                assert bins[0] == 1
                assert bins[-1] <= min(num_bins, bin_count + r)
                # base bins are always taken
                assert set(range(1, bin_count - r)) <= set(bins)
            assert found[0] == tuple(range(1, bin_count + 1))  # the leftmost set comes first
            if bin_count == num_bins:
                assert set(found) == {tuple(range(1, num_bins + 1))}


@cache
def spaces():
    return [traced(built(kind)) for kind in (Plain, Residual, Gated)]


@given(
    number=st.integers(0, 2),
    beta=st.one_of(st.floats(0.25, 6), st.integers(1, 5)),
    min_width=st.one_of(st.integers(1, 6), st.floats(0.01, 1)),
    divisor=st.integers(1, 4),
    r=st.integers(0, 4),
    kind=st.sampled_from(["shared", "per group", "bilateral"]),
    data=st.data(),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_all_candidates_of_a_width_cost_the_same(number, beta, min_width, divisor, r, kind, data):
    space = spaces()[number]
    make = uniform_bins if isinstance(beta, int) else flops_sensitive_bins
    bins = make(space, beta, min_width=min_width, divisor=divisor)
    binned = BinnedSpace(space, bins)
    bin_counts = np.array([data.draw(st.integers(1, n)) for n in binned.num_bins])
    sharing = Bilateral() if kind == "bilateral" else LocallyFree(r, per_group=kind == "per group")
    candidates = sharing.candidates(binned, bin_counts, torch.Generator().manual_seed(0))
    widths = bins.widths(bin_counts).tolist()
    cost = space.flops(widths)
    assert candidates
    for subnet in candidates:
        kept = channels_of(space, subnet)
        assert [len(channels) for channels in kept.values()] == widths
        assert space.flops({name: len(channels) for name, channels in kept.items()}) == cost
        for group, units in zip(bins.groups, subnet.units, strict=True):
            divisor_of_group = space.group(group.name).divisor
            assert units.tolist()[: group.first // divisor_of_group] == list(range(group.first // divisor_of_group))
            assert (np.diff(units) > 0).all()
    keys = [tuple(tuple(units.tolist()) for units in subnet.units) for subnet in candidates]
    assert len(set(keys)) == len(keys)


def test_candidates_with_one_pattern_for_all_groups():
    space = traced(built(Plain))
    binned = BinnedSpace(space, uniform_bins(space, 4))  # bins of 2 and of 3 channels
    candidates = LocallyFree(1).candidates(binned, np.array([3, 3]), torch.Generator())
    assert [channels_of(space, subnet) for subnet in candidates] == [
        {"one": [0, 1, 2, 3, 4, 5], "two": [0, 1, 2, 3, 4, 5, 6, 7, 8]},  # bins 1 2 3
        {"one": [0, 1, 2, 3, 6, 7], "two": [0, 1, 2, 3, 4, 5, 9, 10, 11]},  # bins 1 2 4
        {"one": [0, 1, 4, 5, 6, 7], "two": [0, 1, 2, 6, 7, 8, 9, 10, 11]},  # bins 1 3 4
    ]
    # at the edges candidates coincide and are run once
    assert len(LocallyFree(1).candidates(binned, np.array([4, 1]), torch.Generator())) == 1
    assert len(LocallyFree(1).candidates(binned, np.array([4, 3]), torch.Generator())) == 3
    assert len(LocallyFree(1).candidates(binned, np.array([2, 1]), torch.Generator())) == 2


def test_the_first_bin_with_the_rest_of_the_division():
    space = traced(built(Plain))
    binned = BinnedSpace(space, flops_sensitive_bins(space, 3))  # `one`: 5 + 3 channels, `two`: 6 + 6
    (subnet,) = LocallyFree(0).candidates(binned, np.array([1, 1]), torch.Generator())
    assert channels_of(space, subnet) == {"one": [0, 1, 2, 3, 4], "two": [0, 1, 2, 3, 4, 5]}


def test_pairs_of_channels_are_kept_together():
    space = traced(built(Gated))
    binned = BinnedSpace(space, flops_sensitive_bins(space, 1))  # `inner`: 6 bins of one pair
    chosen = LocallyFree(1).candidates(binned, np.array([3, 8]), torch.Generator())[1]
    # bins 1, 2 and 4; channel i gates with channel i + 6
    assert channels_of(space, chosen)["inner"] == [0, 1, 3, 6, 7, 9]


def test_patterns_of_their_own_for_each_group():
    space = traced(built(Plain))
    binned = BinnedSpace(space, flops_sensitive_bins(space, 1))  # 8 and 6 bins
    bin_counts = np.array([4, 3])
    generator = torch.Generator().manual_seed(0)
    few = LocallyFree(1, per_group=True, max_candidates=4).candidates(binned, bin_counts, generator)
    assert 1 < len(few) <= 4
    assert [units.tolist() for units in few[0].units] == [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]  # the leftmost is there
    many = LocallyFree(1, per_group=True, max_candidates=200).candidates(binned, bin_counts, generator)
    found = {tuple(tuple(units.tolist()) for units in subnet.units) for subnet in many}
    shared = LocallyFree(1).candidates(binned, bin_counts, generator)
    of_one = {tuple(subnet.units[0].tolist()) for subnet in shared}
    of_two = {tuple(subnet.units[1].tolist()) for subnet in shared}
    assert len(many) == len(found) == 9  # 3 x 3, each once
    assert found == set(itertools.product(of_one, of_two))


def test_bilateral_is_the_left_and_the_right_side():
    space = traced(built(Plain))
    binned = BinnedSpace(space, uniform_bins(space, 4))
    left, right = Bilateral().candidates(binned, np.array([2, 3]), torch.Generator())
    assert channels_of(space, left) == {"one": [0, 1, 2, 3], "two": list(range(9))}
    # the first bin is part of both
    assert channels_of(space, right) == {"one": [0, 1, 6, 7], "two": [0, 1, 2, 6, 7, 8, 9, 10, 11]}
    assert len(Bilateral().candidates(binned, np.array([4, 4]), torch.Generator())) == 1
    assert len(Bilateral().candidates(binned, np.array([1, 1]), torch.Generator())) == 1


def test_sharing_degree_by_hand():
    assert sharing_degree(np.array([1, 2, 3, 4]), np.array([1, 2, 5])) == 2 / 3
    assert sharing_degree(np.array([1, 2]), np.array([3, 4])) == 0
    assert sharing_degree(np.array([1, 2, 4]), np.array([1, 2, 4, 5])) == 1


def test_sharing_degree_of_the_fixed_sharing_is_one_and_of_the_free_one_at_least_its_base():
    fixed = [np.array(assigned_bins(c, 8, 0, (0,))) for c in range(1, 9)]
    assert {sharing_degree(left, right) for left in fixed for right in fixed} == {1.0}  # theorem 1
    for r, c, other in itertools.product((1, 2), range(1, 9), range(1, 9)):
        degrees = [
            sharing_degree(np.array(left), np.array(right))
            for left in assignments(c, 8, r)
            for right in assignments(other, 8, r)
        ]
        assert min(degrees) >= max(min(c, other) - r - 1, 1) / min(c, other)
        assert max(degrees) == 1.0
    # c=3 has {1, 3, 4}, c=4 has {1, 2, 3, 4}, {1, 2, 3, 5} and {1, 2, 4, 5}: with r=1 two of three are shared
    assert sharing_degree(np.array([1, 3, 4]), np.array([1, 2, 4, 5])) == 2 / 3


def test_r_must_be_below_the_bins_of_some_group():
    model = built(Plain)
    space = traced(model)
    bins = flops_sensitive_bins(space, 2)  # 4 and 3 bins
    check_sharing(LocallyFree(3), bins)
    with pytest.raises(BinError, match=r"must hold for at least one group, but got r=4 and at most 4 bins; lower r"):
        check_sharing(LocallyFree(4), bins)
    with pytest.raises(BinError, match="got r=4"):
        Supernet(model, space, bins, LocallyFree(4))
    check_sharing(LocallyFree(0), flops_sensitive_bins(space, 1000))  # the fixed sharing needs no freedom


def test_bad_patterns():
    with pytest.raises(BinError, match="r must be a whole number of at least 0, but is -1"):
        LocallyFree(-1)
    with pytest.raises(BinError, match="max_candidates must be a whole number of at least 1, but is 0"):
        LocallyFree(1, per_group=True, max_candidates=0)


def test_bins_of_another_model_are_refused():
    with pytest.raises(BinError, match="must belong to the width space"):
        BinnedSpace(traced(built(Plain)), uniform_bins(traced(built(Residual)), 4))


def test_an_offset_with_too_many_patterns_is_refused():
    assert LocallyFree(6).num_offset_sets == 1716
    with pytest.raises(BinError, match="r=7 gives 6435"):
        LocallyFree(7)
