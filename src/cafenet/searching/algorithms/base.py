"""What every search algorithm is: a generator that proposes width vectors and is told their scores."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from cafenet.scoring.scorer import FloatArray
from cafenet.searching.feasible import Feasible
from cafenet.space.bins import IntArray

METHODS = {"evolution": "CafeNet-E", "random": "CafeNet-R", "greedy": "CafeNet-G", "trend": "CafeNet-T"}
"""How tables name what each algorithm finds."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """Width vectors to score, and how many of the best matter: those that cannot be among them may be dropped early."""

    taken: IntArray
    """Bins per group, one row a width vector."""
    num_kept: int
    """The algorithm goes on from that many of the best."""
    is_own_contest: bool = False
    """Whether only this proposal's widths compete for these places, instead of all that were proposed before, too."""
    label: str = ""


Proposals: TypeAlias = Generator[Proposal, FloatArray, None]
"""Yields proposals, receives the scores of their rows (higher is better). The highest score wins."""

Settle: TypeAlias = Callable[[Feasible], IntArray]
"""The rows that an algorithm settles on, best first, under the budget that it searched or a tighter one."""

SettledProposals: TypeAlias = Generator[Proposal, FloatArray, IntArray | Settle]
"""Such a one that returns the rows that it settles on, best first, or how it settles, whatever their scores."""


class Algorithm(Protocol):
    """A way to search. All chance comes from `rng`, so equal scores and seeds lead to equal proposals."""

    @property
    def name(self) -> str: ...

    def num_widths(self, feasible: Feasible) -> int:
        """About how many widths it will propose, for progress."""
        ...

    def proposals(self, feasible: Feasible, rng: np.random.Generator) -> Proposals | SettledProposals:
        """Propose until done."""
        ...


def distinct(rows: IntArray) -> IntArray:
    """The rows without repetitions, in the order they came: sorted ones would be scored from narrow to wide."""
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows[np.sort(first)]
