"""Example inputs at another batch size, and the mark that lets `torch.export` leave the batch size open."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from cafenet.runtimes.session import Inputs


def batch_size(inputs: Inputs) -> int | None:
    """Finds the batch size of example inputs.

    Args:
        inputs: Positional and keyword arguments.

    Returns:
        The size of the first dimension of the first tensor that has dimensions, or None if there is no such tensor.
    """
    return next((leaf.shape[0] for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor) and leaf.ndim), None)


def with_batch_size(inputs: Inputs, size: int) -> Inputs:
    """Makes inputs of another batch size; the first dimension of every tensor that has the old size becomes the new.

    Args:
        inputs: Positional and keyword arguments.
        size: The new batch size.

    Returns:
        Inputs with random floating-point values, and with rows of other tensors repeated.
    """
    old, generator = batch_size(inputs), torch.Generator().manual_seed(1)

    def resized(leaf: Any) -> Any:
        if not _is_batched(leaf, old):
            return leaf
        if leaf.is_floating_point():
            return torch.randn(size, *leaf.shape[1:], generator=generator).to(leaf.dtype)
        return leaf[torch.arange(size) % leaf.shape[0]]

    resized_inputs: Inputs = tree_map(resized, inputs)
    return resized_inputs


def open_batch(model: nn.Module, inputs: Inputs) -> Any:
    """Describes to `torch.export` which dimensions of the inputs are the batch, of any size.

    Args:
        model: The model.
        inputs: Positional and keyword arguments with a batch of two or more.

    Returns:
        The argument `dynamic_shapes` of `torch.export.export`.
    """
    old, dimension, shapes = batch_size(inputs), torch.export.Dim("batch"), torch.export.ShapesCollection()
    for leaf in tree_leaves(inputs):
        if _is_batched(leaf, old):
            shapes[leaf] = {0: dimension}
    return shapes.dynamic_shapes(model, *inputs)


def _is_batched(leaf: Any, size: int | None) -> bool:
    return isinstance(leaf, Tensor) and leaf.ndim > 0 and leaf.shape[0] == size and size > 0
