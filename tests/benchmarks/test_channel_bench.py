"""The network of the public table has exactly the table's costs, and its screening design is balanced."""

import numpy as np
import pytest
import torch

import cafenet
from benchmarks.channel_bench.network import (
    CHANNELS,
    RESNET_CHANNELS,
    build_network,
    build_resnet,
    quarters_to_channels,
)
from benchmarks.channel_bench.screening import fit_line, orthogonal_rows
from benchmarks.channel_bench.table import MOBILENET, RESNET, judge, read_labels


@pytest.mark.parametrize(
    ("quarters", "flops", "params"), [([4] * 7, 211_281_920, 1_804_170), ([1] * 7, 14_285_312, 125_418)]
)
def test_costs_of_the_widest_and_the_narrowest_network(quarters, flops, params):
    """As the table's description says."""
    space = cafenet.trace(build_network(quarters_to_channels(quarters)), torch.zeros(1, 3, 32, 32))
    assert (space.flops(), space.params()) == (flops, params)
    assert [group.channels for group in space.groups] == quarters_to_channels(quarters)


@pytest.mark.skipif(not MOBILENET.exists(), reason=f"{MOBILENET} is not there")
def test_costs_of_random_widths_are_the_tables():
    labels = read_labels()
    space = cafenet.trace(build_network(), torch.zeros(1, 3, 32, 32))
    rows = np.random.default_rng(0).choice(len(labels.quarters), 50, replace=False)
    widths = labels.quarters[rows] * np.array(CHANNELS) // 4
    assert np.allclose(space.flops(widths) / space.flops(), labels.flops_share[rows])
    assert (space.params(widths) == labels.params[rows]).all()


@pytest.mark.skipif(not RESNET.exists(), reason=f"{RESNET} is not there")
def test_costs_of_the_resnet_are_the_tables():
    labels = read_labels(RESNET)
    space = cafenet.trace(build_resnet(), torch.zeros(1, 3, 32, 32))
    assert (space.flops(), space.params()) == (1_436_226_560, 15_356_170)
    rows = np.random.default_rng(0).choice(len(labels.quarters), 50, replace=False)
    widths = labels.quarters[rows] * np.array(RESNET_CHANNELS) // 4
    assert np.allclose(space.flops(widths) / space.flops(), labels.flops_share[rows])
    assert (space.params(widths) == labels.params[rows]).all()


@pytest.mark.skipif(not MOBILENET.exists(), reason=f"{MOBILENET} is not there")
def test_a_line_through_the_labels_themselves_is_judged_well():
    labels = read_labels()
    found = judge(labels.logarithms @ fit_line(labels.quarters, labels.mean), labels)
    assert 0.8 < found["tau"] < 0.85
    assert 0.65 < found["tau at half"] < 0.75
    assert max(found[f"regret {percent}%"] for percent in (75, 50, 25)) < 0.3
    assert judge(labels.mean, labels)["regret 50%"] == 0


def test_the_rows_are_orthogonal_and_folded():
    rows = orthogonal_rows(7)
    signs = np.where(rows == 3, 1, -1)
    assert rows.shape == (16, 7)
    assert (signs.sum(axis=0) == 0).all()
    assert (signs.T @ signs == 16 * np.eye(7)).all()
    assert sorted(map(tuple, signs)) == sorted(map(tuple, -signs))


def test_a_line_is_found_again():
    rows = orthogonal_rows(7)
    worths = np.arange(7.0)
    assert np.allclose(fit_line(rows, np.log(rows / 4) @ worths + 60), worths)
