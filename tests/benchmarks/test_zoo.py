"""The shares of FLOPs that the zoo shows."""

import pytest
import torch
from torch import nn

import cafenet
from benchmarks.zoo.ours import shares_left


def test_shares_left():
    """5 channels at 2 multiply-adds in and 3 out: 3 of 5 are half, rounded up, and 1 is the least."""
    space = cafenet.trace(nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3)), torch.zeros(1, 2))
    assert shares_left(space) == {"left_at_half": pytest.approx(15 / 25), "smallest": pytest.approx(5 / 25)}
