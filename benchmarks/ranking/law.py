"""A line that is fitted to the labels of all widths: what any width is worth, with far less noise than a label.

A label of one width is noisy, and a search may find one that has none. The line over the logarithms of the groups'
widths averages the noise of all labels, so some seeds show what a change of the search is worth.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from benchmarks.common.results_file import Results
from benchmarks.ranking.networks import Task
from benchmarks.ranking.ranking import Truth, truth
from cafenet.scoring.scorer import FloatArray

_USUAL_ERROR = 0.7
"""Usual distance in points; labels much farther from the line count less. Layers of two channels are in no trend."""


@dataclass(frozen=True, eq=False)
class Law:
    """Accuracy = start + sum of worth_g log(width_g), in percent."""

    start: float
    worths: FloatArray
    errors: FloatArray
    """The distance of every label from the line that the others give."""

    def accuracy(self, widths: Any) -> float:
        """Accuracy of one width vector by the line."""
        return float(self.start + np.log(np.asarray(widths)) @ self.worths)

    @property
    def reading(self) -> str:
        """A sentence about the distance of the labels from the line."""
        half, most = np.quantile(self.errors, [0.5, 0.9])
        return (
            f"Half of the labels lie within {half:.2f} points of the line that the others give, 90% within {most:.2f}."
        )


def known_truth(results: Results, task: Task) -> Truth | None:
    """The labels of a network's widths, None where there are too few."""
    widths = task.bins.widths(task.bin_counts)
    logarithms = np.log(widths / task.bins.widths(task.bins.num_bins))
    return truth(results.rows(f"labels {task.name}"), task.space.flops(widths) / task.space.flops(), logarithms)


def fit_law(task: Task, known: Truth) -> Law:
    """The line over all labelled widths."""
    logarithms = np.log(task.bins.widths(task.bin_counts[known.numbers]))
    columns, labels = np.column_stack([np.ones(len(logarithms)), logarithms]), known.mean
    others = [np.arange(len(labels)) != number for number in range(len(labels))]
    without = [row @ _fit(columns[each], labels[each]) for row, each in zip(columns, others, strict=True)]
    start, *worths = _fit(columns, labels)
    return Law(float(start), np.array(worths), abs(labels - np.array(without)))


def _fit(columns: FloatArray, labels: FloatArray) -> FloatArray:
    first = np.linalg.lstsq(columns, labels, rcond=None)[0]
    found = least_squares(lambda line: columns @ line - labels, first, loss="soft_l1", f_scale=_USUAL_ERROR)
    line: FloatArray = found.x
    return line
