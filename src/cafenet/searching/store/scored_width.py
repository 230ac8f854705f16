"""A scored width, as the trial store keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass

from cafenet.scoring.scorer import Score
from cafenet.space.bins import IntArray

Key = tuple[int, ...]
"""Bins per group: a width vector as a dictionary's key."""


@dataclass(frozen=True, eq=False)
class ScoredWidth:
    """A width vector with its score and its costs."""

    bin_counts: Key
    """Number of bins that each group takes."""
    score: Score
    """Score of the width vector."""
    costs: Mapping[str, float]
    """Costs of the width vector by name, for example flops and params."""
    search: str
    """The search that proposed it, for example "evolution 50% seed 0"."""
    label: str
    """Step of the search that proposed it, for example "iteration 3"."""
    seconds: float
    """Time that the scoring took, in seconds."""
    is_exact: bool
    """True if the width vector was scored exactly, as finalists are."""

    @property
    def sign(self) -> tuple[Key, str, bool]:
        """Values that tell this score from the others of a study."""
        return self.bin_counts, self.search, self.is_exact


def key_of(bin_counts: IntArray) -> Key:
    """Return a width vector as a tuple of ints, which can be the key of a dictionary.

    Args:
        bin_counts: Number of bins that each group takes.

    Returns:
        The numbers as a tuple.
    """
    return tuple(int(number) for number in bin_counts)
