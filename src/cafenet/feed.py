"""Batches in an order that depends on seed, epoch and step alone, so that any run can be resumed or sharded exactly.

One step of the training takes `num_parts` micro-batches, spread over processes and accumulation: two processes with one
micro-batch each see what one process that accumulates two sees.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from cafenet.errors import TrainingError


class Feed:
    """Micro-batches of a data set for one process."""

    def __init__(
        self,
        data: Dataset[Any] | DataLoader[Any],
        *,
        batch_size: int,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        accumulate: int = 1,
        num_workers: int = 0,
    ) -> None:
        """A DataLoader lends its data set, batch size, collate function and workers; the order is always ours."""
        collate = None
        if isinstance(data, DataLoader):
            if data.batch_size is None:
                raise TrainingError("a DataLoader must make batches (batch_size must not be None)")
            batch_size, num_workers, collate = data.batch_size, data.num_workers, data.collate_fn
            data = data.dataset
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
            raise TrainingError("training data must be a map-style data set (with a length), or a DataLoader of one")
        self._num_parts, self._rank, self._accumulate = world_size * accumulate, rank, accumulate
        self.batch_size, self._seed = batch_size, seed
        self._dataset, self._num_workers, self._collate = data, num_workers, collate
        size = len(data)
        self.steps_per_epoch = size // (batch_size * self._num_parts)
        if size == 0:
            raise TrainingError("training data must hold at least one example, but is empty")
        if self.steps_per_epoch == 0:
            raise TrainingError(
                f"training data must fill one step of {self._num_parts} x {batch_size} examples, but has {size}; "
                "lower the batch size"
            )

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[list[Any]]:
        """The steps of an epoch from `first_step` on, each a list of this process's micro-batches."""
        order = np.random.default_rng((self._seed, epoch)).permutation(len(self._dataset))
        chunks: list[list[int]] = []
        for step in range(first_step, self.steps_per_epoch):
            for part in range(self._rank * self._accumulate, (self._rank + 1) * self._accumulate):
                start = (step * self._num_parts + part) * self.batch_size
                chunks.append(order[start : start + self.batch_size].tolist())
        loader: DataLoader[Any] = DataLoader(
            _Seeded(self._dataset, self._seed, epoch),
            batch_sampler=chunks,
            num_workers=self._num_workers,
            collate_fn=self._collate,
            generator=torch.Generator().manual_seed(self._seed),
        )
        micro = iter(loader)
        for _ in range(first_step, self.steps_per_epoch):
            yield [next(micro) for _ in range(self._accumulate)]


class _Seeded(Dataset[Any]):
    """Augmentations draw numbers that depend on seed, epoch and example, not on what was drawn before."""

    def __init__(self, dataset: Dataset[Any], seed: int, epoch: int) -> None:
        self._dataset, self._seed, self._epoch = dataset, seed, epoch

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        states = torch.get_rng_state(), random.getstate(), np.random.get_state()
        try:
            return [self._seeded_item(index) for index in indices]
        finally:
            torch.set_rng_state(states[0])
            random.setstate(states[1])
            np.random.set_state(states[2])

    def _seeded_item(self, index: int) -> Any:
        seed = int(np.random.SeedSequence((self._seed, self._epoch, index)).generate_state(1)[0])
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        return self._dataset[index]
