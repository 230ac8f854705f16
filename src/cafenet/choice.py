"""Choosing the best of a width's candidates: the paper's exact way, and a race that costs a fraction of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from torch import Tensor

from cafenet.errors import BinError

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
    candidate. The batch is cut into chunks of one size (a CPU prepares its kernels for a size only once); each round
    doubles the chunks and drops all but the better 40% of the candidates, and losses add up. With 3 candidates and
    chunks of an eighth, all three see one chunk and the best two see two more: 0.875 forward passes instead of 3.
    """

    chunk: float = 1 / 8
    """Share of the batch in one chunk for up to 4 candidates; half of it for up to 16, a quarter for more."""
    min_examples: int = 8
    """Smallest number of examples in a chunk."""

    def __post_init__(self) -> None:
        if not 0 < self.chunk <= 1 or self.min_examples < 1:
            raise BinError(f"a race needs 0 < chunk <= 1 and min_examples >= 1, but got {self}")

    def best(self, num_candidates: int, batch_size: int, losses: LossesOf) -> tuple[int, list[float]]:
        """The winner of the race."""
        chunk, rounds = self.plan(num_candidates, batch_size)
        total, seen = np.zeros(num_candidates), np.zeros(num_candidates)
        alive = np.arange(num_candidates)
        start = 0
        for num_chunks, num_alive in rounds:
            alive = np.sort(alive[np.argsort(total[alive], kind="stable")[:num_alive]])
            for number in range(start, start + num_chunks):
                total[alive] += losses(alive.tolist(), number * chunk, min((number + 1) * chunk, 1.0)).numpy()
            seen[alive] += num_chunks
            start += num_chunks
        winner = alive[int(np.argmin(total[alive]))]
        return int(winner), (total / seen).tolist()

    def plan(self, num_candidates: int, batch_size: int) -> tuple[float, list[tuple[int, int]]]:
        """The chunk's share, and (number of chunks, number of candidates) of each round; never more than the batch."""
        chunk = self.chunk / (1 if num_candidates <= 4 else 2 if num_candidates <= 16 else 4)
        chunk = min(1.0, max(chunk, self.min_examples / batch_size))
        available = int(1 / chunk + 1e-9)
        first = 3 if num_candidates <= 2 else 1
        rounds = [(min(first, available), num_candidates)]
        while rounds[-1][1] > 2:
            available -= rounds[-1][0]
            if available == 0:
                break
            rounds.append((min(2 * rounds[-1][0], available), max(2, round(0.4 * rounds[-1][1]))))
        return chunk, rounds
