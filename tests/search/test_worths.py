"""What groups are worth, from scores that rise with a width and flatten."""

import numpy as np
import pytest

from cafenet.searching.worths import fit_worths


def test_the_example_of_the_module():
    widths = np.array([2.0, 4.0, 8.0])
    ((worth,), error) = fit_worths(np.log(widths)[:, None], np.array([1.0, 2.0, 2.0]))
    assert worth == pytest.approx(0.5 / np.log(2), rel=0.05)
    assert error < 0.05


def flattening(logarithms, slopes):
    """A score that rises with each group up to its median width, and then no more."""
    ends = np.median(logarithms, axis=0)
    return np.minimum(logarithms, ends) @ slopes


def of_a_line(logarithms, values):
    return np.linalg.lstsq(logarithms - logarithms.mean(axis=0), values - values.mean(), rcond=None)[0]


def test_worths_of_scores_that_flatten_are_steadier_than_those_of_a_line():
    """Between one sample of widths and the next, as a search would draw them."""
    slopes = np.array([9.0, 2.0, 4.0, 7.0, 1.0, 3.0])
    found, lines = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        logarithms = 0.3 * rng.standard_normal((60, 6))
        values = flattening(logarithms, slopes) + 0.1 * rng.standard_normal(60)
        found.append(fit_worths(logarithms, values)[0])
        lines.append(of_a_line(logarithms, values))
    means, spreads = (np.mean(found, axis=0), np.mean(lines, axis=0)), (np.std(found, axis=0), np.std(lines, axis=0))
    assert means[0] == pytest.approx(means[1], abs=0.5)  # both tell the same on average
    assert spreads[0].mean() < 0.7 * spreads[1].mean()


def test_what_is_left_is_the_noise():
    rng = np.random.default_rng(0)
    logarithms = 0.3 * rng.standard_normal((400, 3))
    values = flattening(logarithms, np.array([5.0, 3.0, 1.0])) + 0.2 * rng.standard_normal(400)
    assert fit_worths(logarithms, values)[1] == pytest.approx(0.2, rel=0.1)


def test_a_group_of_one_width_is_worth_the_least():
    logarithms = np.column_stack([np.zeros(50), np.linspace(0, 1, 50)])
    worths, _ = fit_worths(logarithms, 2 * logarithms[:, 1])
    assert worths == pytest.approx([0.1, 2.0], rel=0.1)


@pytest.mark.parametrize("values", [np.zeros(50), -np.linspace(0, 1, 50)])
def test_where_scores_do_not_rise_all_are_worth_the_same(values):
    logarithms = np.column_stack([np.linspace(0, 1, 50), np.linspace(0, 1, 50)])
    assert fit_worths(logarithms, values)[0].tolist() == [1.0, 1.0]


def test_more_groups_than_widths():
    """The worthy group is found among many."""
    rng = np.random.default_rng(0)
    logarithms = 0.3 * rng.standard_normal((60, 100))
    worths, _ = fit_worths(logarithms, 10 * logarithms[:, 7])
    assert worths.argmax() == 7
