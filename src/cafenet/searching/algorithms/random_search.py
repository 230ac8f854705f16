"""Random search: widths spread over the space under the budget (CafeNet-R of the paper)."""

from dataclasses import dataclass

import numpy as np

from cafenet.common.options import PositiveInt, check_options
from cafenet.errors import ScoringError
from cafenet.searching.algorithms.base import Proposal, Proposals, distinct
from cafenet.searching.feasible import Feasible

_BATCH = 40


@dataclass(frozen=True)
class RandomSearch:
    """Score `samples` distinct widths in the band under the budget; the paper takes 2,000."""

    samples: PositiveInt = 2000

    def __post_init__(self) -> None:
        check_options(self, ScoringError)

    @property
    def name(self) -> str:
        """What results are labelled with."""
        return "random"

    def num_widths(self, feasible: Feasible) -> int:
        """As many as asked for, or all that there are."""
        return min(self.samples, feasible.bins.search_space_size)

    def proposals(self, feasible: Feasible, rng: np.random.Generator) -> Proposals:
        """Batches of new widths; a space that seems used up ends the search."""
        seen: set[tuple[int, ...]] = set()
        num_idle = 0
        while len(seen) < self.samples and num_idle < 25:
            drawn = distinct(feasible.sample(_BATCH, rng))
            new = [row for row in drawn if tuple(row) not in seen][: self.samples - len(seen)]
            num_idle = 0 if new else num_idle + 1
            if new:
                seen.update(tuple(row) for row in new)
                yield Proposal(np.stack(new), num_kept=5, label=f"width {len(seen)}")
