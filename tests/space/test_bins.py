"""Bins by hand: sizes from FLOPs, the rest of the division in the first one, edges on whole units."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import BinError
from cafenet.searching.budget import costs_in
from cafenet.space.bins import Bins, GroupBins, cost_sensitive_bins, flops_sensitive_bins, uniform_bins
from cafenet.supernet.build import SupernetConfig, build_bins, for_capped_costs
from tests.helpers.small_training import Gated, Plain, built, traced


def cut(bins: Bins) -> dict[str, tuple[int, int, int]]:
    """First bin, size of the others and their number with the first, by group."""
    return {group.name: (group.first, group.size, group.num_bins) for group in bins.groups}


def test_widths_of_ten_channels_in_bins_of_three():
    group = GroupBins("x", channels=10, first=4, size=3)
    assert group.num_bins == 3
    assert [group.width(bin_counts) for bin_counts in (1, 2, 3)] == [4, 7, 10]
    assert [group.bin_count(width) for width in (4, 7, 10)] == [1, 2, 3]
    for width in (1, 3, 5, 11, 13):
        with pytest.raises(BinError, match=f"'x' must be 4 \\+ a multiple of 3 up to 10, but got {width}"):
            group.bin_count(width)


# One channel of `one` causes 16*27 (written) + 16*9*12 (read by `two`) = 2160 multiply-adds, one of `two` 16*9*8 + 4 =
# 1156; so a bin of `two` has round(beta * 2160 / 1156) = round(1.8685 beta) channels where one of `one` has beta.
@pytest.mark.parametrize(
    ("beta", "one", "two"),
    [
        (0.25, (1, 1, 8), (1, 1, 12)),  # sizes below 1 are 1
        (0.5, (1, 1, 8), (1, 1, 12)),
        (1, (1, 1, 8), (2, 2, 6)),
        (2, (2, 2, 4), (4, 4, 3)),
        (3, (5, 3, 2), (6, 6, 2)),  # 8 = 2*3 + 2: the first bin of `one` holds 3 + 2
        (4, (4, 4, 2), (12, 7, 1)),  # 12 = 7 + 5
        (1000, (8, 8, 1), (12, 12, 1)),
    ],
)
def test_sizes_follow_the_cost_of_a_channel(beta, one, two):
    space = traced(built(Plain))
    assert [group.sensitivity for group in space.groups] == [2160, 1156]
    bins = flops_sensitive_bins(space, beta)
    assert cut(bins) == {"one": one, "two": two}
    assert bins.search_space_size == one[2] * two[2]
    assert bins.num_bins.tolist() == [one[2], two[2]]


def test_bins_follow_parameters_where_these_are_capped():
    space = traced(built(Plain))
    full = space.params()
    saved = [full - space.params({group.name: group.channels - 1}) for group in space.groups]
    bins = cost_sensitive_bins(space, 2, ("params",))
    expected = [round(2 * max(saved) / each) for each in saved]
    assert [group.size for group in bins.groups] == expected
    both = cost_sensitive_bins(space, 2, ("flops", "params"))
    finest = np.minimum([group.size for group in bins.groups], [g.size for g in flops_sensitive_bins(space, 2).groups])
    assert [group.size for group in both.groups] == finest.tolist()


def test_a_budget_on_parameters_can_narrow_a_late_group_that_flops_would_leave_whole():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 64), nn.Linear(64, 10)
    )
    space = cafenet.trace(model, torch.zeros(1, 3, 32, 32))
    late = [group.name for group in space.groups].index("4")
    assert flops_sensitive_bins(space).num_bins[late] == 1
    config = for_capped_costs(SupernetConfig(), costs_in("50% params"))
    assert build_bins(space, config).num_bins[late] > 8
    assert for_capped_costs(SupernetConfig(), costs_in("50%, 12ms")).bins == "flops_sensitive"
    assert for_capped_costs(SupernetConfig(), costs_in("50%+1.5M params")).bins == "flops_params_sensitive"
    assert for_capped_costs(SupernetConfig(bins="uniform"), costs_in("50% params")).bins == "uniform"


def test_width_vectors_of_bin_counts_and_back():
    bins = flops_sensitive_bins(traced(built(Plain)), 3)
    assert bins.widths(np.array([[1, 1], [1, 2], [2, 2]])).tolist() == [[5, 6], [5, 12], [8, 12]]
    assert bins.bin_counts([5, 12]).tolist() == [1, 2]
    with pytest.raises(BinError, match="'two'"):
        bins.bin_counts([5, 11])


@pytest.mark.parametrize(
    ("num_groups", "one", "two"),
    [
        (1, (8, 8, 1), (12, 12, 1)),
        (4, (2, 2, 4), (3, 3, 4)),
        (5, (4, 1, 5), (4, 2, 5)),  # 8 = 4 + 4*1, 12 = 4 + 4*2
        (12, (1, 1, 8), (1, 1, 12)),  # there are no more than 8 channels
    ],
)
def test_uniform_bins_cut_every_group_into_as_many_parts(num_groups, one, two):
    assert cut(uniform_bins(traced(built(Plain)), num_groups)) == {"one": one, "two": two}


@pytest.mark.parametrize(
    ("min_width", "one", "two"),
    [
        (1, (2, 2, 4), (4, 4, 3)),
        (2, (2, 2, 4), (4, 4, 3)),
        (3, (4, 2, 3), (4, 4, 3)),
        (0.25, (2, 2, 4), (4, 4, 3)),  # 2 of 8, 3 of 12
        (0.3, (4, 2, 3), (4, 4, 3)),  # 2.4 and 3.6 are rounded up
        (0.75, (6, 2, 2), (12, 4, 1)),
        (1.0, (8, 2, 1), (12, 4, 1)),
        (99, (8, 2, 1), (12, 4, 1)),
    ],
)
def test_a_minimum_width_in_channels_or_as_a_share_joins_the_first_bin(min_width, one, two):
    assert cut(flops_sensitive_bins(traced(built(Plain)), 2, min_width=min_width)) == {"one": one, "two": two}


def test_minimum_width_of_uniform_bins():
    assert cut(uniform_bins(traced(built(Plain)), 4, min_width=0.5)) == {"one": (4, 2, 3), "two": (6, 3, 3)}


def test_a_divisor_puts_edges_on_its_multiples_below_the_full_width():
    space = traced(built(Plain))
    # sizes of 1 and 2 become 4; 8 is a multiple of 4, and so is 12
    assert cut(flops_sensitive_bins(space, 1, divisor=4)) == {"one": (4, 4, 2), "two": (4, 4, 3)}
    # 12 = 8 + 4: one bin, since two of 8 would not fit; sizes of `one` and `two` are 8
    assert cut(flops_sensitive_bins(space, 1, divisor=8)) == {"one": (8, 8, 1), "two": (12, 8, 1)}
    # a divisor above the channels leaves one bin
    assert cut(flops_sensitive_bins(space, 1, divisor=64)) == {"one": (8, 8, 1), "two": (12, 12, 1)}


def test_divisor_8_of_a_larger_layer():
    class Wide(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = torch.nn.Conv2d(3, 44, 1)
            self.two = torch.nn.Conv2d(44, 5, 1)

        def forward(self, x):
            return self.two(self.one(x).relu())

    bins = flops_sensitive_bins(traced(Wide()), 1, divisor=8)
    (group,) = bins.groups
    # 44 = 8*5 + 4: widths 12, 20, 28, 36, 44, all 4 below a multiple of 8, as the full width is
    assert [group.width(bin_counts) for bin_counts in range(1, group.num_bins + 1)] == [12, 20, 28, 36, 44]


def test_groups_whose_channels_go_in_pairs_have_bins_of_whole_units():
    space = traced(built(Gated))
    # `inner`: 2 of its 12 channels make one unit. Per channel 16*27 + (16*9*8)/2 = 1008; `outer`: 16*9*6 + 4 = 868.
    assert [(g.name, g.channels, g.divisor, g.sensitivity) for g in space.groups] == [
        ("inner", 12, 2, 1008),
        ("outer", 8, 1, 868),
    ]
    # 1, 3 and 5 channels of `inner` are 0.5, 1.5 and 2.5 units; halves are rounded to even, 0 to 1
    assert cut(flops_sensitive_bins(space, 1))["inner"] == (2, 2, 6)
    assert cut(flops_sensitive_bins(space, 3))["inner"] == (4, 4, 3)
    assert cut(flops_sensitive_bins(space, 5))["inner"] == (4, 4, 3)
    assert cut(uniform_bins(space, 4))["inner"] == (6, 2, 4)
    assert cut(flops_sensitive_bins(space, 1, divisor=3))["inner"] == (6, 6, 2)


# paper, appendix a14: 1.5e27 and 2.0e19 for its own, unpublished way to count
@pytest.mark.parametrize(("beta", "size"), [(1, 7.62e26), (2, 2.59e19)])
def test_search_space_of_mobilenet_v2(beta, size):
    space = cafenet.trace(cafenet.load_model("torchvision:mobilenet_v2"), torch.zeros(1, 3, 224, 224))
    bins = flops_sensitive_bins(space, beta)
    assert math.prod(group.channels / group.size for group in bins.groups) == pytest.approx(size, rel=0.01)
    # the whole bins are fewer, and exactly countable
    assert bins.search_space_size == math.prod(group.channels // group.size for group in bins.groups)


@pytest.mark.parametrize("beta", [0, -1, math.nan, math.inf])
def test_beta_must_be_positive(beta):
    with pytest.raises(BinError, match=f"beta must be a number above 0, but is {beta}"):
        flops_sensitive_bins(traced(built(Plain)), beta)


@pytest.mark.parametrize("min_width", [0, -3, 0.0, -0.5, 1.5, True])
def test_bad_minimum_widths(min_width):
    with pytest.raises(BinError, match="min_width must be a whole number of at least 1 or a number above 0"):
        flops_sensitive_bins(traced(built(Plain)), 1, min_width=min_width)


def test_bad_divisor_and_number_of_parts():
    space = traced(built(Plain))
    with pytest.raises(BinError, match="divisor must be a whole number of at least 1, but is 0"):
        flops_sensitive_bins(space, 1, divisor=0)
    with pytest.raises(BinError, match="num_groups must be a whole number of at least 1, but is 0"):
        uniform_bins(space, 0)
