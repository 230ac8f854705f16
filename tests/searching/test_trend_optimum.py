"""The best widths of a trend, against all widths that there are."""

import numpy as np
import pytest

from cafenet.searching.algorithms import trend_optimum as optimum
from cafenet.searching.algorithms.trend_optimum import best_of_trend
from cafenet.searching.budget import Budget, Cap
from cafenet.searching.feasible import Feasible
from tests.helpers.small_search import binned, every_vector

BINS = 12


def chain(limit, *, num_layers=5, more_caps=()):
    """Layers in a row: what a channel costs depends on how wide its neighbours are; `params` are the first layer's."""

    def flops(widths):
        return (widths[..., :-1] * widths[..., 1:]).sum(axis=-1).astype(float)

    costs = {"flops": flops, "params": lambda widths: widths[..., 0].astype(float)}
    return Feasible(binned(*[BINS] * num_layers), costs, Budget("x", (Cap("flops", limit), *more_caps)))


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


def test_the_example_of_the_module():
    space = chain(48.0, num_layers=4)
    assert space.fits(np.array([[4, 4, 4, 4], [1, 6, 4, 4], [3, 6, 3, 4]])).all()
    assert not space.fits(np.array([[2, 6, 4, 4], [3, 6, 4, 4], [4, 6, 3, 4]])).any()


def test_every_cap_holds():
    space, rows = chain(200.0, num_layers=4, more_caps=[Cap("params", 3.0)]), every_vector([BINS] * 4)
    worths = np.array([2.0, 0.5, 1.0, 1.0])
    found = best_of_trend(space, worths, 100.0)
    assert (found[:, 0] <= 3).all()
    assert space.fits(found).all()
    assert (np.log(found[0]) @ worths) == pytest.approx((np.log(rows[space.fits(rows)]) @ worths).max())


def test_many_groups_that_do_not_meet_are_as_wide_as_they_are_worth():
    """With a price of 1 a channel, the best width of a group is its share of all worths, here of 800 channels."""
    worths = np.exp(0.3 * np.random.default_rng(0).standard_normal(40))
    costs = {"flops": lambda widths: widths.sum(axis=-1).astype(float)}
    space = Feasible(binned(*[64] * 40), costs, Budget("x", (Cap("flops", 800.0),)))
    found = best_of_trend(space, worths, 4.0)[0]
    assert found == pytest.approx(800 * worths / worths.sum(), abs=1.0)
    assert found.sum() == 800


def test_the_same_widths_every_time():
    worths = np.array([0.5, 2.0, 1.0, 1.0, 0.3])
    first, second = (best_of_trend(chain(288.0), worths, 2.0) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert len(np.unique(first, axis=0)) == len(first) == 20
    assert chain(288.0).fits(first).all()
