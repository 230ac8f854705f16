"""Batches of a user's data: pairs of inputs and targets of any structure, and their examples."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

Batch: TypeAlias = tuple[Any, Any]
"""A pair (inputs, target), with inputs as for `trace`."""

LossFunction: TypeAlias = Callable[[Any, Any], Tensor]
"""A function loss(output, target) that returns the mean over the batch."""

LABELS = "labels"
"""Entry of a dict batch that holds the targets."""


def pair_of(batch: Any) -> Batch | None:
    """Converts a batch of the user's data to a pair.

    A dict is what the model is called with, labels included, so that it can compute its own loss. Smallest example: the
    batch {"input_ids": a, "labels": b} becomes ({"input_ids": a, "labels": b}, b).

    Args:
        batch: A pair (inputs, target), or a dict of keyword arguments.

    Returns:
        The inputs and the target, which is the whole dict if it has no entry `labels`; None for anything else.
    """
    if isinstance(batch, Mapping):
        inputs = dict(batch)  # texts come as a class of its own, whose entries PyTorch would not see
        return inputs, inputs.get(LABELS, inputs)
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        return None
    return dict(batch[0]) if isinstance(batch[0], Mapping) else batch[0], batch[1]


def without_labels(inputs: Any) -> Any:
    """Leaves the labels of a dict batch out.

    Args:
        inputs: Inputs of a model.

    Returns:
        The inputs without the entry `labels`.
    """
    is_labelled = isinstance(inputs, Mapping) and len(inputs) > 1
    return {key: value for key, value in inputs.items() if key != LABELS} if is_labelled else inputs


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
