"""Two methods over the same seeds: the interval is Student's, and a win is claimed only outside of it."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel

from cafenet.common.statistics import compare_paired
from cafenet.errors import CafeNetError


def test_the_docstring_by_hand():
    """Differences 2 and 3: mean 2.5, standard error 0.5, and t of one degree of freedom is 12.706 at 95%."""
    difference = compare_paired([3, 5], [1, 2])
    assert difference.mean == 2.5
    assert (difference.low, difference.high) == (pytest.approx(2.5 - 12.7062 * 0.5), pytest.approx(2.5 + 12.7062 * 0.5))
    assert (difference.num_pairs, difference.confidence) == (2, 0.95)
    assert str(difference) == "+2.5 [-3.853, +8.853] (2 pairs)"


@pytest.mark.parametrize("num_pairs", [2, 3, 10, 100])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_as_scipy_has_it(num_pairs, confidence):
    rng = np.random.default_rng(num_pairs)
    first, second = rng.normal(0.3, 1, num_pairs), rng.normal(0, 1, num_pairs)
    expected = ttest_rel(first, second).confidence_interval(confidence)
    found = compare_paired(first.tolist(), second.tolist(), confidence=confidence)
    assert (found.low, found.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    assert found.mean == pytest.approx((first - second).mean())
    assert found.is_clear == (ttest_rel(first, second).pvalue < 1 - confidence)


def test_pairs_count_not_the_spread_of_each_method():
    """Seeds that are good for both methods hide nothing: both spread by 10, their differences by 0.01."""
    second = [10.0, 20.0, 30.0]
    assert compare_paired([10.11, 20.1, 30.09], second).is_clear
    assert not compare_paired([20.1, 30.09, 10.11], second).is_clear


@pytest.mark.parametrize(
    ("first", "is_clear"), [([1.0, 1.1, 0.9], True), ([-1.0, -1.1, -0.9], True), ([1.0, -1.0, 0.2], False)]
)
def test_clear_both_ways(first, is_clear):
    assert compare_paired(first, [0.0] * 3).is_clear is is_clear


def test_no_difference_at_all_is_not_a_win():
    assert not compare_paired([1.0, 2.0], [1.0, 2.0]).is_clear


def test_one_pair_has_no_interval():
    difference = compare_paired([0.5], [0.25])
    assert (difference.mean, difference.low, difference.high) == (0.25, -math.inf, math.inf)
    assert not difference.is_clear
    assert str(difference) == "+0.25 (one pair, no interval)"


@pytest.mark.parametrize(("first", "second"), [([1.0], []), ([], []), ([1.0, 2.0], [1.0])])
def test_values_without_a_partner(first, second):
    with pytest.raises(CafeNetError, match=f"as many values of both .* but got {len(first)} and {len(second)}"):
        compare_paired(first, second)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, -0.1])
def test_confidence_is_a_share(confidence):
    with pytest.raises(CafeNetError, match=f"`0 < confidence < 1` must hold, but got {confidence}"):
        compare_paired([1.0, 2.0], [1.0, 2.0], confidence=confidence)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_no_numbers(value):
    with pytest.raises(CafeNetError, match="compared values must be finite"):
        compare_paired([1.0, value], [1.0, 2.0])
