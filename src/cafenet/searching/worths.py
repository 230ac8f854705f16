"""What each group is worth: how much the logarithm of its width adds to the score, about.

A supernet serves the widths best that it was trained on. So its score falls steeply where a group gets narrower than
these and hardly rises where it gets wider (docs/ranking.md), and a straight line fits it badly. What is fitted is a
curve for each group that rises and flattens, the sum of some ramps that end at a width each; the group's worth is the
slope of the line through its curve. Smallest example: a score of 1, 2 and 2 at widths 2, 4 and 8 is one ramp of slope
1 / log(2) that ends at 4; the line through it has half that slope, and noise in the other groups is not taken for it.
"""

import numpy as np
from scipy.optimize import nnls

from cafenet.scoring import FloatArray

_ENDS = (0.2, 0.5, 1.0)
"""Where ramps end: quantiles of the group's widths."""
_RIDGE = 0.01
"""Share of the widths' own variance that is added to it."""
_LEAST_WORTH = 0.1
"""Of the mean worth: wider never hurts, whatever noise says."""


def fit_worths(logarithms: FloatArray, values: FloatArray) -> tuple[FloatArray, float]:
    """The worth of each group, none far below the mean, and the standard deviation of what the curves leave.

    All are worth the same where scores do not rise with any width.
    """
    ramps, group_of = _ramps(logarithms)
    centred = ramps - ramps.mean(axis=0)
    heights = _non_negative(centred, values - values.mean(), _RIDGE * float(logarithms.var(axis=0).mean()))
    error = float(np.std(values - centred @ heights))
    slopes = heights * _slopes(logarithms, ramps, group_of)
    worths = np.bincount(group_of, weights=slopes, minlength=logarithms.shape[1])
    mean = float(worths.mean())
    return (np.maximum(worths, _LEAST_WORTH * mean) if mean > 0 else np.ones_like(worths)), error


def _ramps(logarithms: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Columns that rise with a group's logarithm up to one of its quantiles, and the group of each."""
    ends = np.quantile(logarithms, _ENDS, axis=0)
    ramps = np.minimum(logarithms[:, None], ends).reshape(len(logarithms), -1)
    return ramps, np.tile(np.arange(logarithms.shape[1]), len(_ENDS))


def _non_negative(columns: FloatArray, values: FloatArray, ridge: float) -> FloatArray:
    """Least squares without negative coefficients."""
    size = columns.shape[1]
    more = np.sqrt(ridge * len(values)) * np.eye(size)
    found: FloatArray = nnls(np.vstack([columns, more]), np.concatenate([values, np.zeros(size)]))[0]
    return found


def _slopes(logarithms: FloatArray, ramps: FloatArray, group_of: FloatArray) -> FloatArray:
    """Of the line through each ramp over the widths of its group; 0 where the group has one width."""
    from_mean = (logarithms - logarithms.mean(axis=0))[:, group_of]
    squares = (from_mean**2).sum(axis=0)
    slopes: FloatArray = np.divide(
        (ramps * from_mean).sum(axis=0), squares, out=np.zeros_like(squares), where=squares > 0
    )
    return slopes
