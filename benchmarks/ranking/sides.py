"""A supernet's score on both sides of a group: its fall with narrower widths, and its rise with wider ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.ranking.ranking import Truth
from cafenet.scoring.scorer import FloatArray

CENTRE = 0.7
"""Share of a group's channels in uniform widths at half the FLOPs, about; supernets are trained on widths around it."""


@dataclass(frozen=True, eq=False)
class Sides:
    """Slopes of every group below and above the centre, in points for each unit of its logarithm."""

    below: FloatArray
    above: FloatArray
    error: float
    """Standard deviation of the residuals."""
    error_of_line: float
    """Standard deviation of the residuals of a line without bends."""


def sides(logarithms: FloatArray, values: FloatArray) -> Sides:
    """A line with a bend at the centre of every group, by least squares.

    Smallest example: one group with shares 0.35, 0.7 and 1, values 40, 50 and 50: 10 / log(2) below, 0 above.
    """
    ones, from_centre = np.ones((len(values), 1)), logarithms - np.log(CENTRE)
    bent = np.hstack([ones, np.minimum(from_centre, 0), np.maximum(from_centre, 0)])
    slopes, error = _least_squares(bent, values)
    below, above = slopes[1:].reshape(2, -1)
    return Sides(below, above, error, _least_squares(np.hstack([ones, from_centre]), values)[1])


def sides_of(rows: dict[str, Any], known: Truth) -> list[Sides]:
    """Fit both sides for every seed's supernet, by the accuracy of the labelled widths."""
    return [sides(known.logarithms, np.array(row["accuracy"])[known.numbers]) for row in rows.values()]


def _least_squares(columns: FloatArray, values: FloatArray) -> tuple[FloatArray, float]:
    slopes: FloatArray = np.linalg.lstsq(columns, values, rcond=None)[0]
    return slopes, float(np.std(values - columns @ slopes))
