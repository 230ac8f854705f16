"""Batches of a user's data: pairs of inputs and targets of any structure, and their examples."""

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

Batch: TypeAlias = tuple[Any, Any]
"""(inputs, target); inputs as for `trace`."""

LossFunction: TypeAlias = Callable[[Any, Any], Tensor]
"""loss(output, target), the mean over the batch."""


def batch_size(batch: Batch) -> int:
    """The number of examples: the size of the first tensor's first dimension."""
    first = next(leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.ndim)
    return int(first.shape[0])


def part_of(batch: Batch, start: int, stop: int) -> Batch:
    """The examples start .. stop of everything in a batch that has them."""
    size = batch_size(batch)
    if (start, stop) == (0, size):
        return batch

    def cut(leaf: Any) -> Any:
        return leaf[start:stop] if has_rows(leaf, size) else leaf

    part: Batch = tree_map(cut, batch, is_leaf=is_texts)
    return part


def has_rows(leaf: Any, size: int) -> bool:
    """Whether this holds something for each of so many examples."""
    if is_texts(leaf):
        return len(leaf) == size
    return isinstance(leaf, Tensor) and leaf.ndim > 0 and int(leaf.shape[0]) == size


def is_texts(leaf: Any) -> bool:
    """A list of texts, as collating makes of one text an example: names of files, say."""
    return isinstance(leaf, (list, tuple)) and bool(leaf) and all(isinstance(each, (str, bytes)) for each in leaf)
