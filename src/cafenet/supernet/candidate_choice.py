"""Choice of the best of a width's candidates: the exact way of the paper, and a race that costs a fraction of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cafenet.errors import BinError

LossesOf: TypeAlias = Callable[[Sequence[int], float, float], Tensor]
"""Function (candidate numbers, start, stop) that returns the candidates' mean losses on a part of the batch; start and
stop are shares of the batch."""


class Choice(Protocol):
    """A way to find the candidate with the smallest loss."""

    def best(
        self, num_candidates: int, batch_size: int, losses: LossesOf, generator: torch.Generator
    ) -> tuple[int, list[float]]:
        """Find the best candidate.

        Args:
            num_candidates: Number of candidates.
            batch_size: Number of examples in the batch.
            losses: Computes losses of some candidates on a part of the batch.
            generator: Source of random numbers.

        Returns:
            The number of the best candidate, and the losses on the part of the batch that each candidate saw (NaN for a
            candidate that was not tried).
        """
        ...


@dataclass(frozen=True)
class Exact:
    """Exact choice: every candidate sees the whole batch, as in the paper.

    Example:
        >>> import torch
        >>> from cafenet.supernet.candidate_choice import Exact
        >>> losses = torch.tensor([0.3, 0.1, 0.2])
        >>> Exact().best(3, 64, lambda numbers, start, stop: losses[list(numbers)], torch.Generator())[0]
        1
    """

    def best(
        self, num_candidates: int, batch_size: int, losses: LossesOf, generator: torch.Generator
    ) -> tuple[int, list[float]]:
        """Find the candidate with the smallest loss on the whole batch.

        Args:
            num_candidates: Number of candidates.
            batch_size: Number of examples in the batch.
            losses: Computes losses of some candidates on a part of the batch.
            generator: Not used.

        Returns:
            The number of the best candidate, and the losses of all.
        """
        seen: list[float] = losses(range(num_candidates), 0.0, 1.0).tolist()
        return int(np.argmin(seen)), seen


@dataclass(frozen=True)
class Race:
    """Race: some candidates see a small part of the batch, and the better ones see further parts.

    The differences between candidates are small compared with the noise of few examples, so it is better to try fewer
    candidates on more examples. Out of n candidates, 2 sqrt(n) take part, drawn anew each time (all of 3, 6 of 10, 12
    of 35), and see two chunks of the batch. Then the better quarter (at least 2) see two more chunks, or one if only 3
    took part. With chunks of an eighth of the batch, that costs 1, 2 and 3.75 forward passes instead of 3, 10 and 35.

    Example:
        >>> from cafenet.supernet.candidate_choice import Race
        >>> Race().plan(num_candidates=10, batch_size=256)
        (0.125, [(2, 6), (2, 2)])
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
        """Run the race.

        Args:
            num_candidates: Number of candidates.
            batch_size: Number of examples in the batch.
            losses: Computes losses of some candidates on a part of the batch.
            generator: Source of random numbers for the draw of participants.

        Returns:
            The number of the winner, and the mean losses that were seen (NaN for a candidate that did not take part).
        """
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
        """Plan the rounds of a race; together they never use more than the batch.

        Args:
            num_candidates: Number of candidates.
            batch_size: Number of examples in the batch.

        Returns:
            The share of the batch in one chunk, and (number of chunks, number of candidates) of each round.
        """
        chunk = min(1.0, max(self.chunk, self.min_examples / batch_size))
        available = int(1 / chunk + 1e-9)
        entrants = min(num_candidates, round(2 * num_candidates**0.5))
        rounds = [(2 if available >= 4 else 1, entrants)]
        further = min(1 if entrants <= 3 else 2, available - rounds[0][0])
        if further > 0 and entrants > 1:
            rounds.append((further, max(2, entrants // 4)))
        return chunk, rounds


def _drawn(num_candidates: int, num_entrants: int, generator: torch.Generator) -> npt.NDArray[np.int64]:
    """Draw the numbers of the candidates that take part."""
    if num_entrants == num_candidates:
        return np.arange(num_candidates)
    return torch.randperm(num_candidates, generator=generator)[:num_entrants].numpy()
