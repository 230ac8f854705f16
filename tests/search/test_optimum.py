"""The best widths of a trend, against all widths that there are."""

import numpy as np
import pytest
from searching import binned, every_vector

from cafenet.searching import optimum
from cafenet.searching.budget import Budget, Cap
from cafenet.searching.feasible import Feasible
from cafenet.searching.optimum import best_of_trend

BINS = 12


def chain(limit):
    """Five layers in a row: what a channel costs depends on how wide its neighbours are."""

    def flops(widths):
        return (widths[..., :-1] * widths[..., 1:]).sum(axis=-1).astype(float)

    return Feasible(binned(*[BINS] * 5), {"flops": flops}, Budget("x", (Cap("flops", limit),)))


def regrets(num_worths):
    """How far the width found is below the best of all, for so many random worths."""
    space, rows = chain(0.5 * 4 * BINS**2), every_vector([BINS] * 5)
    rows = rows[space.fits(rows)]
    found = []
    for seed in range(num_worths):
        worths = np.exp(0.5 * np.random.default_rng(seed).standard_normal(5))
        best = (np.log(rows) @ worths).max()
        found.append(best - (np.log(best_of_trend(space, worths, 100.0)[0]) @ worths))
    return np.array(found)


def test_no_width_is_better():
    assert regrets(8) == pytest.approx(0.0, abs=1e-9)


def test_exchanges_between_two_groups_are_not_enough(monkeypatch):
    monkeypatch.setattr(optimum, "_ROUNDS", 0)
    assert regrets(8).max() > 0.01


def test_the_same_widths_every_time():
    worths = np.array([0.5, 2.0, 1.0, 1.0, 0.3])
    first, second = (best_of_trend(chain(288.0), worths, 2.0) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert len(np.unique(first, axis=0)) == len(first) == 20
    assert chain(288.0).fits(first).all()
