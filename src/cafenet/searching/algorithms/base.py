"""The interface of search algorithms: a generator proposes width vectors and receives their scores."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from cafenet.scoring.scorer import FloatArray
from cafenet.searching.feasible import Feasible
from cafenet.space.bins import IntArray

METHODS = {"evolution": "CafeNet-E", "random": "CafeNet-R", "greedy": "CafeNet-G", "trend": "CafeNet-T"}
"""Names in tables of the networks that each algorithm finds."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """Width vectors to score, and how many of the best matter.

    Vectors that cannot be among the best may be dropped before they are scored on all examples.
    """

    bin_counts: IntArray
    """Bins per group, one width vector per row."""
    num_kept: int
    """Number of best vectors from which the algorithm goes on."""
    is_own_contest: bool = False
    """If True, only the vectors of this proposal compete for these places; otherwise all vectors proposed so far do."""
    label: str = ""
    """Text that describes the proposal in progress and in the store, for example "iteration 3"."""


Proposals: TypeAlias = Generator[Proposal, FloatArray, None]
"""Generator that yields proposals and receives the scores of their rows (higher is better). The highest score wins."""

Settle: TypeAlias = Callable[[Feasible], IntArray]
"""Function that gives the rows an algorithm settles on, best first, under the searched budget or a tighter one."""

SettledProposals: TypeAlias = Generator[Proposal, FloatArray, IntArray | Settle]
"""Generator like `Proposals` that returns its result: rows, best first whatever their scores, or a `Settle`
function."""


class Algorithm(Protocol):
    """A search algorithm.

    All randomness comes from `rng`, so equal scores and seeds lead to equal proposals.
    """

    @property
    def name(self) -> str:
        """Short name that results are labelled with."""
        ...

    def num_widths(self, feasible: Feasible) -> int:
        """Return about how many width vectors the algorithm will propose, for progress.

        Args:
            feasible: The width vectors that meet the budget.

        Returns:
            The expected number.
        """
        ...

    def proposals(self, feasible: Feasible, rng: np.random.Generator) -> Proposals | SettledProposals:
        """Propose width vectors until the search is done.

        Args:
            feasible: The width vectors that meet the budget.
            rng: Source of all random numbers.

        Returns:
            A generator that yields proposals and receives their scores.
        """
        ...


def distinct(rows: IntArray) -> IntArray:
    """Return the rows without repetitions, in their order; sorted rows would be scored from narrow to wide.

    Args:
        rows: Bins per group, one width vector per row.

    Returns:
        The first occurrence of each row.
    """
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows[np.sort(first)]
