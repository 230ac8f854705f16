"""Batches of a user's data: pairs of inputs and targets of any structure, and their examples."""

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

Batch: TypeAlias = tuple[Any, Any]
"""A pair (inputs, target), with inputs as for `trace`."""

LossFunction: TypeAlias = Callable[[Any, Any], Tensor]
"""A function loss(output, target) that returns the mean over the batch."""


def batch_size(batch: Batch) -> int:
    """Counts the examples of a batch: the size of the first tensor's first dimension.

    Args:
        batch: A batch.

    Returns:
        The number of examples.
    """
    first = next(leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.ndim)
    return int(first.shape[0])


def part_of(batch: Batch, start: int, stop: int) -> Batch:
    """Cuts a range of examples out of a batch.

    Args:
        batch: A batch.
        start: Number of the first example.
        stop: Number after the last example.

    Returns:
        The part. Entries that have no examples are kept whole.
    """
    size = batch_size(batch)
    if (start, stop) == (0, size):
        return batch

    def cut(leaf: Any) -> Any:
        return leaf[start:stop] if has_rows(leaf, size) else leaf

    part: Batch = tree_map(cut, batch, is_leaf=is_texts)
    return part


def has_rows(leaf: Any, size: int) -> bool:
    """Whether an entry of a batch holds something for each example.

    Args:
        leaf: An entry of a batch.
        size: Number of examples.

    Returns:
        True for a tensor or a list of texts with that many rows.
    """
    if is_texts(leaf):
        return len(leaf) == size
    return isinstance(leaf, Tensor) and leaf.ndim > 0 and int(leaf.shape[0]) == size


def is_texts(leaf: Any) -> bool:
    """Whether an entry of a batch is a list of texts, into which collating turns one text per example (names of
    files).

    Args:
        leaf: An entry of a batch.

    Returns:
        True for a list or tuple of texts that is not empty.
    """
    return isinstance(leaf, (list, tuple)) and bool(leaf) and all(isinstance(each, (str, bytes)) for each in leaf)
