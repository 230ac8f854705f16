"""A scored width, as the trial store keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass

from cafenet.scoring.scorer import Score
from cafenet.space.bins import IntArray

Key = tuple[int, ...]
"""Bins per group: a width vector as a dictionary's key."""


@dataclass(frozen=True, eq=False)
class ScoredWidth:
    """A width vector, what it scored and what it costs."""

    taken: Key
    score: Score
    costs: Mapping[str, float]
    search: str
    """The search that asked for it, as in "evolution 50% seed 0"."""
    label: str
    """When, as in "iteration 3"."""
    seconds: float
    is_exact: bool


def key_of(taken: IntArray) -> Key:
    """A width vector as a tuple of ints."""
    return tuple(int(number) for number in taken)
