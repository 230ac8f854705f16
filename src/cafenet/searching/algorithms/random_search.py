"""Random search: widths spread over the whole space under the budget (CafeNet-R of the paper)."""

from dataclasses import dataclass

import numpy as np

from cafenet.common.options import PositiveInt, check_options
from cafenet.errors import ScoringError
from cafenet.searching.algorithms.base import Proposal, Proposals, distinct
from cafenet.searching.feasible import Feasible

_BATCH = 40


@dataclass(frozen=True)
class RandomSearch:
    """Random search within the band under the budget.

    Example:
        >>> import cafenet
        >>> cafenet.RandomSearch(samples=500).name
        'random'
    """

    samples: PositiveInt = 2000
    """Number of distinct width vectors to score; the paper uses 2,000."""

    def __post_init__(self) -> None:
        check_options(self, ScoringError)

    @property
    def name(self) -> str:
        """Short name that results are labelled with."""
        return "random"

    def num_widths(self, feasible: Feasible) -> int:
        """Return the number of samples, or the size of the search space if that is smaller.

        Args:
            feasible: The width vectors that meet the budget.

        Returns:
            The expected number of scored vectors.
        """
        return min(self.samples, feasible.bins.search_space_size)

    def proposals(self, feasible: Feasible, rng: np.random.Generator) -> Proposals:
        """Propose batches of new width vectors; the search ends early if no new ones are found.

        Args:
            feasible: The width vectors that meet the budget.
            rng: Source of all random numbers.

        Yields:
            Proposals of at most 40 vectors.
        """
        seen: set[tuple[int, ...]] = set()
        num_idle = 0
        while len(seen) < self.samples and num_idle < 25:
            drawn = distinct(feasible.sample(_BATCH, rng))
            new = [row for row in drawn if tuple(row) not in seen][: self.samples - len(seen)]
            num_idle = 0 if new else num_idle + 1
            if new:
                seen.update(tuple(row) for row in new)
                yield Proposal(np.stack(new), num_kept=5, label=f"width {len(seen)}")
