"""Examples that are decoded once and held in memory, because recalibration and scoring read them again and again."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    default_collate,
)

from cafenet.common.interrupts import worker_start
from cafenet.common.user_code import items_of
from cafenet.errors import ScoringError
from cafenet.modules.batches import Batch, has_rows, is_texts, pair_of, part_of
from cafenet.scoring.padding import to_one_length
from cafenet.space.bins import IntArray
from cafenet.training.batch_feed import SeededBatches, is_map_style, takes_all

Data: TypeAlias = Dataset[Any] | DataLoader[Any] | Iterable[Batch]
"""A data set, a loader, or batches: pairs of inputs and targets, or dicts with an entry `labels`."""

MOST_BYTES = 8 * 2**30
"""Largest size of examples that are held in memory."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples in memory: one large batch, from which parts are cut as needed."""

    batch: Batch
    """All examples as one pair of inputs and targets."""
    size: int
    """Number of examples."""

    def batches(self, start: int, stop: int, batch_size: int) -> Iterator[Batch]:
        """Cut some of the examples into batches of nearly equal size.

        Args:
            start: Number of the first example.
            stop: Number after the last example.
            batch_size: Largest number of examples in a batch; 10 examples with a batch size of 4 give 4, 3 and 3.

        Yields:
            The batches, in order.
        """
        num_batches = max(1, math.ceil((stop - start) / batch_size))
        edges = np.linspace(start, stop, num_batches + 1).round().astype(int).tolist()
        for first, last in pairwise(edges):
            yield part_of(self.batch, first, last)

    def digest(self) -> str:
        """Return a short digest of the content that does not depend on the order of the examples.

        Returns:
            16 hexadecimal digits.
        """
        return hashlib.blake2b(b"".join(sorted(_keys(self.batch, self.size))), digest_size=8).hexdigest()


def hold_examples(
    data: Data,
    name: str,
    *,
    batch_size: int = 256,
    num_examples: int | None = None,
    device: torch.device | None = None,
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Examples:
    """Read data once into memory.

    Args:
        data: A data set, a loader, or an iterable of batches.
        name: Name of the data in error messages.
        batch_size: Number of examples that are read at once.
        num_examples: Largest number of examples. From a data set (or the loader of one), a fixed random sample is
            taken, which is the same in every run, including augmentations; from a list of batches, the first examples
            are taken.
        device: Device that the examples are moved to.
        memory_format: Memory format of image tensors.

    Returns:
        The examples.

    Raises:
        ScoringError: If the data are empty or too large, do not give pairs, or have examples of several shapes.
    """
    batches, size, num_bytes = [], 0, 0
    for batch in items_of(_batches(data, batch_size, num_examples), f"the {name}", "reading it into memory"):
        batches.append(as_pair(batch, name))
        leaves = [leaf for leaf in tree_flatten(batch)[0] if isinstance(leaf, Tensor) and leaf.ndim]
        size += int(leaves[0].shape[0]) if leaves else 0
        num_bytes += sum(leaf.numel() * leaf.element_size() for leaf in leaves)
        if num_bytes > MOST_BYTES:
            raise ScoringError(
                f"{name} must fit into {MOST_BYTES / 2**30:.0f} GiB of memory, but {size} examples do not; pass fewer"
            )
        if num_examples is not None and size >= num_examples:
            break
    if size == 0:
        raise ScoringError(f"{name} must hold at least one example, but is empty")
    kept = size if num_examples is None else min(size, num_examples)
    whole = part_of(_joined(to_one_length(batches)), 0, kept)
    return Examples(_placed(whole, device, memory_format), kept)


def pairs_of(data: Data, name: str, batch_size: int = 256) -> Iterator[Batch]:
    """Read data batch by batch, without holding them in memory.

    Args:
        data: A data set, a loader, or an iterable of batches.
        name: Name of the data in error messages.
        batch_size: Number of examples that are read at once.

    Yields:
        The batches, as pairs of inputs and targets.

    Raises:
        ScoringError: If the data are none, or do not give pairs.
    """
    for batch in items_of(_batches(data, batch_size, None), f"the {name}", "reading it"):
        yield as_pair(batch, name)


def as_pair(batch: Any, name: str) -> Batch:
    """Return a batch of the user's data as a pair.

    Args:
        batch: The batch.
        name: Name of the data in error messages.

    Returns:
        The inputs and the target.

    Raises:
        ScoringError: If the batch is neither a pair nor a dict, or an entry of a dict was not made into a tensor.
    """
    pair = pair_of(batch)
    if pair is None:
        raise ScoringError(f"{name} must give pairs (inputs, target) or dicts, but gave {type(batch).__name__}")
    inputs = pair[0]
    lists = [key for key in inputs if isinstance(inputs[key], list)] if isinstance(batch, Mapping) else []
    if lists and not is_texts(inputs[lists[0]]):
        raise ScoringError(
            f"{name} must give tensors, but the entry {lists[0]!r} of a batch is a list; let the data set give tensors "
            "(set_format('torch') for one of Hugging Face), or pass a DataLoader with a collate_fn"
        )
    return pair


def in_content_order(examples: Examples) -> Examples:
    """Sort examples into a seemingly random order that depends only on their content.

    A part of the result is a fair sample, however the user sorted the data, for instance by class.

    Args:
        examples: The examples.

    Returns:
        The sorted examples.
    """
    order = torch.from_numpy(np.argsort(np.array(_keys(examples.batch, examples.size)), kind="stable"))
    leaves, spec = tree_flatten(examples.batch, is_leaf=is_texts)
    sorted_leaves = [_rows(leaf, order) if has_rows(leaf, examples.size) else leaf for leaf in leaves]
    return Examples(tree_unflatten(sorted_leaves, spec), examples.size)


def _batches(data: Data, batch_size: int, num_examples: int | None) -> Iterable[Any]:
    """Return an iterable of batches for any kind of data."""
    if isinstance(data, DataLoader):
        if isinstance(data.dataset, IterableDataset) or data.batch_sampler is None:
            return data
        order, collate, num_workers = _order_of_loader(data), data.collate_fn, data.num_workers
        return _read(data.dataset, order, batch_size, num_examples, collate, num_workers)
    if isinstance(data, IterableDataset):
        return DataLoader(data, batch_size)
    if is_map_style(data):
        return _read(cast("Dataset[Any]", data), np.arange(len(cast(Sized, data))), batch_size, num_examples)
    if isinstance(data, Iterable):
        return data
    raise ScoringError(f"data must be a data set, a DataLoader or a list of batches, but got {type(data).__name__}")


def _read(
    dataset: Dataset[Any],
    order: IntArray,
    batch_size: int,
    num_examples: int | None,
    collate: Callable[[list[Any]], Any] = default_collate,
    num_workers: int = 0,
) -> Iterable[Any]:
    """Return batches of the numbered examples, or of a fixed random sample of them."""
    if num_examples is not None and num_examples < len(order):
        order = order[np.random.default_rng(0).permutation(len(order))[:num_examples]]
    return DataLoader(
        SeededBatches(dataset, collate, seed=0, epoch=0),
        batch_size=None,
        sampler=[order[start : start + batch_size].tolist() for start in range(0, len(order), batch_size)],
        num_workers=num_workers,
        worker_init_fn=worker_start(),
        generator=torch.Generator(),
    )


def _order_of_loader(loader: DataLoader[Any]) -> IntArray:
    """Return the numbers of the examples that a loader reads; they must be the same each time."""
    sampler = loader.sampler if type(loader.batch_sampler) is BatchSampler else loader.batch_sampler
    if isinstance(sampler, SubsetRandomSampler):
        return np.array(sampler.indices, dtype=np.int64)
    size = len(cast(Sized, loader.dataset))
    if not takes_all(sampler, size):
        raise ScoringError(
            f"a DataLoader must read the same examples each time, but has a {type(sampler).__name__}; pass the "
            "examples that it stands for as a torch.utils.data.Subset"
        )
    return np.arange(size)


def _joined(batches: list[Batch]) -> Batch:
    """Join batches: leaves with one row per example are concatenated, and any other leaf is that of the first batch."""
    if len(batches) == 1:
        return batches[0]
    flat = [tree_flatten(batch, is_leaf=is_texts) for batch in batches]
    sizes = [
        next(int(leaf.shape[0]) for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim) for leaves, _ in flat
    ]
    joined = []
    for column in zip(*(leaves for leaves, _ in flat), strict=True):
        if not all(has_rows(leaf, size) for leaf, size in zip(column, sizes, strict=True)):
            joined.append(column[0])
        else:
            joined.append([text for leaf in column for text in leaf] if is_texts(column[0]) else _stacked(column))
    batch: Batch = tree_unflatten(joined, flat[0][1])
    return batch


def _stacked(column: tuple[Tensor, ...]) -> Tensor:
    """Concatenate tensors whose examples must have one shape."""
    shapes = sorted({tuple(leaf.shape[1:]) for leaf in column})
    if len(shapes) > 1:
        raise ScoringError(
            f"all examples must have one shape, but some are {list(shapes[0])} and others {list(shapes[1])}; resize or "
            "pad them in the data set"
        )
    return torch.cat(column)


def _placed(batch: Batch, device: torch.device | None, memory_format: torch.memory_format) -> Batch:
    """Move a batch to a device, with images in the memory format."""
    leaves, spec = tree_flatten(batch)
    moved = [
        leaf.to(device, memory_format=memory_format if leaf.ndim == 4 else torch.preserve_format)
        if isinstance(leaf, Tensor)
        else leaf
        for leaf in leaves
    ]
    placed: Batch = tree_unflatten(moved, spec)
    return placed


def _keys(batch: Batch, size: int) -> list[bytes]:
    """Return eight bytes per example that depend only on its content."""
    leaves = [leaf for leaf in tree_flatten(batch)[0] if isinstance(leaf, Tensor) and has_rows(leaf, size)]
    rows = [leaf.detach().cpu().contiguous().view(torch.uint8).reshape(size, -1).numpy() for leaf in leaves]
    keys = []
    for number in range(size):
        digest = hashlib.blake2b(digest_size=8)
        for row in rows:
            digest.update(row[number].data)
        keys.append(digest.digest())
    return keys


def _rows(leaf: Any, order: Tensor) -> Any:
    """Return the rows of a leaf in another order."""
    return leaf[order.to(leaf.device)] if isinstance(leaf, Tensor) else [leaf[number] for number in order.tolist()]
