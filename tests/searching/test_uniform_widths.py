"""The Uniform baseline: one factor on channels, not on bins."""

import numpy as np
import pytest
import torch
from torch import nn

import cafenet
from cafenet.searching.budget import Budget, Cap, parse_budget
from cafenet.searching.feasible import Feasible
from cafenet.searching.uniform_widths import uniform_widths
from cafenet.space.bins import Bins, GroupBins, flops_sensitive_bins


def two_layers(first, second):
    return nn.Sequential(nn.Linear(3, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 2))


def coarse(space, prices, limit):
    """A budget on a cost per channel, seen through bins of a fifth of each group."""
    bins = Bins(tuple(GroupBins(g.name, g.channels, g.channels // 5, g.channels // 5) for g in space.groups))
    cost = {"flops": lambda widths: widths @ np.array(prices, dtype=float)}
    return Feasible(bins, cost, Budget("b", (Cap("flops", limit),)))


def test_the_smallest_example():
    space = cafenet.trace(two_layers(10, 40), torch.zeros(1, 3))
    assert uniform_widths(space, coarse(space, [10, 1], 75)).tolist() == [5, 23]


def test_steps_of_a_divisor():
    space = cafenet.trace(two_layers(10, 40), torch.zeros(1, 3))
    within = coarse(space, [10, 1], 75)
    # Steps of 4 counted down from the full width: 6, 10 and 4, 8, ..., 40; 6 and 12 cost 72, 6 and 16 would cost 76.
    assert uniform_widths(space, within, divisor=4).tolist() == [6, 12]


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.75])
def test_shares_are_alike_within_the_budget(share):
    """The bins of a search are coarse where channels are cheap; Uniform must not see them."""
    sizes = [16, 16, 32, 32, 64, 64, 96, 128, 128, 256]
    layers, before = [], 3
    for number, size in enumerate(sizes):
        layers += [nn.Conv2d(before, size, 3, 2 if number in (2, 4, 6) else 1, 1), nn.ReLU()]
        before = size
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 20))
    space = cafenet.trace(model, torch.zeros(1, 3, 16, 16))
    costs = {"flops": space.flops, "params": space.params}
    budget = parse_budget(f"{100 * share}%", space)
    within = Feasible(flops_sensitive_bins(space, 2.0), costs, budget)
    widths = uniform_widths(space, within)
    factors = widths / np.array(sizes)
    steps = 1.5 / np.array(sizes)  # half a channel of rounding and one more
    middle = np.median(factors)
    assert (abs(factors - middle) <= steps + 1.5 / 256).all(), factors
    assert 0.97 <= space.flops(widths) / (share * space.flops()) <= 1
