"""Choosing the best of a width's candidates: the paper's exact way, and a race that costs a fraction of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cafenet.errors import BinError

LossesOf: TypeAlias = Callable[[Sequence[int], float, float], Tensor]
"""losses(candidate numbers, start, stop): mean losses on the part start .. stop (shares) of the batch."""


class Choice(Protocol):
    """A way to find the candidate with the smallest loss."""

    def best(
        self, num_candidates: int, batch_size: int, losses: LossesOf, generator: torch.Generator
    ) -> tuple[int, list[float]]:
        """The best candidate's number, and the losses seen (of the part of the batch that each was tried on; NaN where
        a candidate was not tried)."""
        ...


@dataclass(frozen=True)
class Exact:
    """Every candidate on the whole batch, as in the paper."""

    def best(
        self, num_candidates: int, batch_size: int, losses: LossesOf, generator: torch.Generator
    ) -> tuple[int, list[float]]:
        """The true minimum."""
        seen: list[float] = losses(range(num_candidates), 0.0, 1.0).tolist()
        return int(np.argmin(seen)), seen


@dataclass(frozen=True)
class Race:
    """Some candidates on a small part of the batch, the better ones on further parts.

    What sets candidates apart is small beside the chance of few examples, so it is better to try fewer of many
    candidates on more examples: 2 sqrt(n) of n enter, drawn anew each time (all of 3, 6 of 10, 12 of 35), and see two
    chunks; then the better quarter (2 at least) see two more, or one where only 3 entered. With chunks of an eighth
    that is 1, 2 and 3.75 forward passes instead of 3, 10 and 35.
    """

    chunk: float = 1 / 8
    """Share of the batch in one chunk."""
    min_examples: int = 8
    """Smallest number of examples in a chunk."""

    def __post_init__(self) -> None:
        if not 0 < self.chunk <= 1 or self.min_examples < 1:
            raise BinError(f"a race needs 0 < chunk <= 1 and min_examples >= 1, but got {self}")

    def best(
        self, num_candidates: int, batch_size: int, losses: LossesOf, generator: torch.Generator
    ) -> tuple[int, list[float]]:
        """The winner of the race."""
        chunk, rounds = self.plan(num_candidates, batch_size)
        total, num_seen = np.zeros(num_candidates), np.zeros(num_candidates)
        alive = _drawn(num_candidates, rounds[0][1], generator)
        start = 0
        for num_chunks, num_alive in rounds:
            alive = np.sort(alive[np.argsort(total[alive], kind="stable")[:num_alive]])
            stop = start + num_chunks
            total[alive] += num_chunks * losses(alive.tolist(), start * chunk, min(stop * chunk, 1.0)).numpy()
            num_seen[alive] += num_chunks
            start = stop
        winner = alive[int(np.argmin(total[alive]))]
        with np.errstate(invalid="ignore"):
            return int(winner), (total / num_seen).tolist()

    def plan(self, num_candidates: int, batch_size: int) -> tuple[float, list[tuple[int, int]]]:
        """The chunk's share, and (number of chunks, number of candidates) of each round; never more than the batch."""
        chunk = min(1.0, max(self.chunk, self.min_examples / batch_size))
        available = int(1 / chunk + 1e-9)
        entrants = min(num_candidates, round(2 * num_candidates**0.5))
        rounds = [(2 if available >= 4 else 1, entrants)]
        further = min(1 if entrants <= 3 else 2, available - rounds[0][0])
        if further > 0 and entrants > 1:
            rounds.append((further, max(2, entrants // 4)))
        return chunk, rounds


def _drawn(num_candidates: int, num_entrants: int, generator: torch.Generator) -> npt.NDArray[np.int64]:
    """The numbers of those that enter."""
    if num_entrants == num_candidates:
        return np.arange(num_candidates)
    return torch.randperm(num_candidates, generator=generator)[:num_entrants].numpy()
