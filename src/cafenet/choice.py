"""Choosing the best of a width's candidates: the paper's exact way, and a race that costs a fraction of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from torch import Tensor

LossesOf: TypeAlias = Callable[[Sequence[int], float, float], Tensor]
"""losses(candidate numbers, start, stop): mean losses on the part start .. stop (shares) of the batch."""


class Choice(Protocol):
    """A way to find the candidate with the smallest loss."""

    def best(self, num_candidates: int, batch_size: int, losses: LossesOf) -> tuple[int, list[float]]:
        """The best candidate's number, and the losses seen (of the part of the batch that each was tried on)."""
        ...


@dataclass(frozen=True)
class Exact:
    """Every candidate on the whole batch, as in the paper."""

    def best(self, num_candidates: int, batch_size: int, losses: LossesOf) -> tuple[int, list[float]]:
        """The true minimum."""
        seen: list[float] = losses(range(num_candidates), 0.0, 1.0).tolist()
        return int(np.argmin(seen)), seen


@dataclass(frozen=True)
class Race:
    """All candidates on a small part of the batch, the better ones on growing parts.

    Candidates share most of their channels, so their losses on the same few examples differ less by chance than by
    candidate. Each round goes on with examples that the survivors have not seen and adds them up: with 3 candidates
    and `start` 1/8, all three see an eighth, the best two another eighth.
    """

    start: float = 0.125
    min_examples: int = 8

    def best(self, num_candidates: int, batch_size: int, losses: LossesOf) -> tuple[int, list[float]]:
        """The winner of the race."""
        total = np.zeros(num_candidates)
        alive = np.arange(num_candidates)
        seen = 0.0
        for share, num_alive in self.rounds(num_candidates, batch_size):
            alive = np.sort(alive[np.argsort(total[alive], kind="stable")[:num_alive]])
            total[alive] = (total[alive] * seen + losses(alive.tolist(), seen, seen + share).numpy() * share) / (
                seen + share
            )
            seen += share
        winner = alive[int(np.argmin(total[alive]))]
        return int(winner), total.tolist()

    def rounds(self, num_candidates: int, batch_size: int) -> list[tuple[float, int]]:
        """(share of the batch, number of candidates) for each round; the examples seen double, candidates thin out."""
        share = self.start / max(1, num_candidates / 3) ** 0.5
        share = min(1.0, max(share, self.min_examples / batch_size))
        plan, seen, alive = [(share, num_candidates)], share, num_candidates
        while alive > 2 and seen + seen <= 1.0:
            alive = max(2, round(alive * 0.35))
            plan.append((seen, alive))
            seen += seen
        return plan
