"""Batches in an order that depends only on seed, epoch and step, so that any run can be resumed or sharded exactly.

One step of the training takes `num_parts` micro-batches, spread over processes and accumulation. Two processes with one
micro-batch each see the same examples as one process that accumulates two.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from cafenet.common.interrupts import worker_start
from cafenet.errors import DataError, TrainingError, first_line
from cafenet.modules.batches import LABELS
from cafenet.training.data_sketch import sketch_of


@runtime_checkable
class DrawnExamples(Protocol):
    """A data set that receives its random numbers as arguments, so that the generators need not be seeded for every
    example.
    """

    num_draws: int
    """Number of random numbers per example."""

    def take(self, indices: Sequence[int], draws: torch.Tensor) -> list[Any]:
        """Returns examples by number.

        Args:
            indices: Numbers of the examples.
            draws: One row of random numbers between 0 and 1 for each example.

        Returns:
            The examples.
        """


class Feed:
    """Micro-batches of a data set for one process.

    Args:
        data: A map-style data set, or a DataLoader. The data set, batch size, collate function and workers of a
            DataLoader are used, but not its order.
        batch_size: Number of examples per micro-batch.
        seed: Seed of the order and of the augmentations.
        rank: Number of this process.
        world_size: Number of processes.
        accumulate: Number of micro-batches per step and process.
        examples_per_step: Number of examples per step of all processes, which decides instead, or None.
        num_workers: Number of processes that load data.

    Raises:
        TrainingError: If the data has no length, is empty, or does not fill one step.
    """

    def __init__(
        self,
        data: Dataset[Any] | DataLoader[Any],
        *,
        batch_size: int,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        accumulate: int = 1,
        examples_per_step: int | None = None,
        num_workers: int = 0,
    ) -> None:
        """Checks that the data fills at least one step."""
        collate: Callable[[list[Any]], Any] = default_collate
        if isinstance(data, DataLoader):
            batch_size, num_workers, collate = _loader_batch_size(data), data.num_workers, data.collate_fn
            data = data.dataset
        if examples_per_step is not None:
            accumulate = _micro_batches(examples_per_step, batch_size, world_size)
        self._num_parts, self._rank, self.accumulate = world_size * accumulate, rank, accumulate
        self.batch_size, self._seed = batch_size, seed
        self._dataset, self._num_workers, self._collate = data, num_workers, collate
        self._size = size = _length(data)
        self.steps_per_epoch = size // (batch_size * self._num_parts)
        if size == 0:
            raise TrainingError("training data must hold at least one example, but is empty")
        if self.steps_per_epoch == 0:
            raise TrainingError(
                f"training data must fill one step of {self._num_parts} x {batch_size} examples, but has {size}; "
                "lower the batch size"
            )

    def sketch(self) -> list[float] | None:
        """Sketches the data, so that a checkpoint recognises them.

        Returns:
            A few numbers, or None if the data differ from read to read.
        """
        return sketch_of(SeededBatches(self._dataset, list, 0, 0), self._size, self._num_workers)

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[list[Any]]:
        """Iterates over the steps of an epoch.

        Args:
            epoch: Number of the epoch.
            first_step: Number of the step to begin with.

        Yields:
            A list of this process's micro-batches for each step.
        """
        order = np.random.default_rng((self._seed, epoch)).permutation(self._size)
        chunks: list[list[int]] = []
        for step in range(first_step, self.steps_per_epoch):
            for part in range(self._rank * self.accumulate, (self._rank + 1) * self.accumulate):
                start = (step * self._num_parts + part) * self.batch_size
                chunks.append(order[start : start + self.batch_size].tolist())
        loader: DataLoader[Any] = DataLoader(
            SeededBatches(self._dataset, self._collate, self._seed, epoch),
            batch_size=None,
            sampler=chunks,
            num_workers=self._num_workers,
            worker_init_fn=worker_start(),
            generator=torch.Generator().manual_seed(self._seed),
        )
        micro = iter(loader)
        for _ in range(first_step, self.steps_per_epoch):
            yield [next(micro) for _ in range(self.accumulate)]


class SeededBatches(Dataset[Any]):
    """A data set of whole batches, whose random numbers depend only on seed, epoch and example, not on earlier
    draws.

    A collate function that mixes examples draws numbers too; they continue those of the batch's last example.

    Args:
        dataset: The data set of examples.
        collate: Function that makes a batch of examples.
        seed: Seed of the augmentations.
        epoch: Number of the epoch.
    """

    def __init__(self, dataset: Dataset[Any], collate: Callable[[list[Any]], Any], seed: int, epoch: int) -> None:
        self._dataset, self._seed, self._epoch = dataset, seed, epoch
        self._collate = collate_examples if collate is default_collate else collate

    def __getitem__(self, indices: Sequence[int]) -> Any:
        with _same_randomness():
            return self._collate(self._examples(indices))

    def _examples(self, indices: Sequence[int]) -> list[Any]:
        if isinstance(self._dataset, DrawnExamples):
            self._seed_all(indices[-1])
            draws = draw_uniform((self._seed, self._epoch), indices, self._dataset.num_draws)
            return self._dataset.take(indices, draws)
        examples = []
        for index in indices:
            self._seed_all(index)
            examples.append(self._dataset[index])
        return examples

    def _seed_all(self, index: int) -> None:
        seed = int(np.random.SeedSequence((self._seed, self._epoch, index)).generate_state(1)[0])
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also reseed the GPU's dropout
        random.seed(seed)
        np.random.seed(seed)


def collate_examples(examples: list[Any]) -> Any:
    """Makes a batch of examples.

    Args:
        examples: The examples.

    Returns:
        The batch.

    Raises:
        DataError: If the examples do not fit together. The message names the reason and a remedy.
    """
    try:
        return default_collate(examples)
    except (TypeError, RuntimeError) as error:
        raise DataError(_mismatch(examples) or f"examples must go into batches, but: {first_line(error)}") from error


def _micro_batches(examples_per_step: int, batch_size: int, world_size: int) -> int:
    """Returns the number of micro-batches of each process that make a step together."""
    if examples_per_step % (batch_size * world_size):
        raise TrainingError(
            f"examples_per_step must be a multiple of batch_size x processes, but {examples_per_step} is none of "
            f"{batch_size} x {world_size}; change one of them"
        )
    return examples_per_step // (batch_size * world_size)


def _mismatch(examples: list[Any]) -> str:
    """Describes why examples do not fit into one batch, if it is a usual reason."""
    columns = list(zip(*map(tree_leaves, examples), strict=False))
    for column in columns:
        kind = type(column[0])
        if not isinstance(column[0], (torch.Tensor, np.ndarray, np.generic, int, float, str, bytes)):
            return (
                f"examples must be made of tensors, arrays, numbers and texts, but one holds a {kind.__module__}."
                f"{kind.__name__}; give the data set a transform, such as torchvision.transforms.ToTensor()"
            )
        shapes = sorted({tuple(each.shape) for each in column if isinstance(each, (torch.Tensor, np.ndarray))})
        if len(shapes) > 1:
            return (
                f"examples of a batch must have one shape, but some are {list(shapes[0])} and others "
                f"{list(shapes[1])}; resize or pad them in the data set, or pass a DataLoader with a collate_fn"
            )
    return ""


def draw_uniform(seed: tuple[int, ...], indices: Sequence[int], count: int) -> torch.Tensor:
    """Draws numbers in [0, 1) that depend only on seed and index (SplitMix64 of a counter).

    Args:
        seed: Numbers that seed the draws.
        indices: Numbers of the examples.
        count: Number of draws per example.

    Returns:
        One row per index.
    """
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    rows = np.asarray(indices, dtype=np.uint64)[:, None]
    counter = rows * np.uint64(count) + np.arange(1, count + 1, dtype=np.uint64)
    mixed = start + counter * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return torch.from_numpy((mixed >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24))


@contextmanager
def _same_randomness() -> Iterator[None]:
    """Restores all global random states on exit."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])


def _length(data: Any) -> int:
    """Counts the examples; data without a length is refused, because it cannot be ordered."""
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise TrainingError("training data must be a map-style data set (with a length), or a DataLoader of one")
    return len(data)


def is_map_style(data: Any) -> bool:
    """Whether data consists of examples by number, as a DataLoader takes them, and not of batches.

    A list may be either. It holds examples if its first target is a single number, `[(image, 3), ...]`, or if its first
    entry is a dict with a single number as `labels` or one row of `input_ids`.

    Args:
        data: Data of the user.

    Returns:
        True if the data holds examples.
    """
    if isinstance(data, (DataLoader, IterableDataset)) or not hasattr(data, "__len__"):
        return False
    if not isinstance(data, (list, tuple)):
        return hasattr(data, "__getitem__")
    if data and isinstance(data[0], Mapping):
        return _is_number(data[0].get(LABELS)) or getattr(data[0].get("input_ids"), "ndim", 0) == 1
    target = data[0][-1] if data and isinstance(data[0], (list, tuple)) and data[0] else None
    return _is_number(target)


def _is_number(target: Any) -> bool:
    """Whether a target is a single number."""
    return isinstance(target, (int, float, np.number)) or (isinstance(target, torch.Tensor) and target.ndim == 0)


class Listed(Dataset[Any]):
    """A data set of anything with a length and examples by number, for instance a list.

    Args:
        examples: The examples.
    """

    def __init__(self, examples: Any) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> Any:
        return self._examples[index]


def as_dataset(data: Any) -> Any:
    """Converts training data to a form that every reader accepts as examples.

    Args:
        data: Data of the user.

    Returns:
        The data itself if it is a data set or a DataLoader, or else a data set of its examples.
    """
    is_listed = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    return Listed(data) if is_listed and not isinstance(data, (Dataset, DataLoader)) else data


def takes_all(sampler: Any, num_examples: int) -> bool:
    """Whether a sampler takes every example exactly once, in any order.

    Args:
        sampler: Sampler of a DataLoader.
        num_examples: Number of examples.

    Returns:
        True if no example is skipped or repeated.
    """
    return isinstance(sampler, DistributedSampler) or (
        isinstance(sampler, (SequentialSampler, RandomSampler))
        and not getattr(sampler, "replacement", False)
        and len(sampler) == num_examples
    )


def _loader_batch_size(loader: DataLoader[Any]) -> int:
    """Batch size of a loader, which must take all examples, because its own order is not used."""
    size = _length(loader.dataset)
    if loader.batch_size is None:
        raise TrainingError("a DataLoader must make batches of one size, but has batch_size None or a batch_sampler")
    sampler = loader.sampler
    if not takes_all(sampler, size):
        raise TrainingError(
            f"a DataLoader must take every example once, but has a {type(sampler).__name__}; the order is made "
            "anew from the seed, so pass the examples that it stands for as a torch.utils.data.Subset"
        )
    return loader.batch_size
