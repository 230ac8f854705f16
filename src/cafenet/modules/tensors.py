"""The tensors of a model and of its outputs: names, places and meta copies."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map

Places: TypeAlias = list[tuple[str, dict[str, Any], str]]
"""Name of a tensor, with a module dictionary and the key under which it is held there. A tied tensor has several."""


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Collects all parameters and buffers. Tied ones appear once.

    Args:
        model: The model.

    Returns:
        The tensors by name.
    """
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def unsaved_buffers(model: nn.Module) -> set[str]:
    """Collects the names of buffers that a state dict leaves out (`persistent=False`), whether they exist already or
    not.

    Args:
        model: The model.

    Returns:
        The names.
    """
    return {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }


def to_meta(tree: Any) -> Any:
    """Replaces tensors by meta tensors of the same shape, strides and type.

    Args:
        tree: A tensor, or nested lists, tuples and dicts with tensors.

    Returns:
        The same structure.
    """
    return tree_map(lambda leaf: _meta_like(leaf) if isinstance(leaf, Tensor) else leaf, tree)


def _meta_like(tensor: Tensor) -> Tensor:
    if tensor.layout is not torch.strided:
        return torch.empty_like(tensor, device="meta")
    # Thirty times faster than empty_like, which is a Python function for meta tensors.
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def without_trace(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Prepares tensors for a run: parameters are detached without a copy, and buffers are clones that may be written
    to.

    Args:
        model: The model, which tells parameters from buffers.
        tensors: Its tensors by name.

    Returns:
        The prepared tensors by name.
    """
    parameters = {name for name, _ in model.named_parameters()}
    return {name: t.detach() if name in parameters else t.clone() for name, t in tensors.items()}


def tensors_of(output: Any) -> Iterator[Tensor]:
    """Iterates over all tensors in an output, also inside objects of the user's own classes.

    Args:
        output: Output of a model.

    Returns:
        An iterator over the tensors.
    """
    return (tensor for _, tensor in tensors_by_path(output))


def tensors_by_path(output: Any) -> Iterator[tuple[str, Tensor]]:
    """Iterates over all tensors in an output, with their paths.

    Args:
        output: Output of a model.

    Yields:
        Pairs of a path and a tensor. A path is `logits`, `0`, `hidden_states.1`, or '' for the output itself.
    """
    stack: list[tuple[str, Any]] = [("", output)]
    met: dict[int, Any] = {}  # keeps visited parts alive, because the id of a freed part could be given to another one
    while stack:
        path, value = stack.pop()
        if isinstance(value, Tensor):
            yield path, value
        elif not isinstance(value, (str, bytes, type, nn.Module)) and id(value) not in met:
            met[id(value)] = value
            parts = [(f"{path}.{name}" if path else str(name), part) for name, part in _parts(value)]
            stack += reversed(parts)


def _parts(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(enumerate(value))
    slots = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())}
    return [*((name, getattr(value, name, None)) for name in sorted(slots)), *getattr(value, "__dict__", {}).items()]


def tensor_places(model: nn.Module) -> Places:
    """Finds the places of all tensors of `named_tensors` in the model. A tied tensor has several places.

    Args:
        model: The model.

    Returns:
        The places, module by module.
    """
    names = {id(tensor): name for name, tensor in named_tensors(model).items()}
    return [
        (names[id(tensor)], held, key)
        for module in model.modules()
        for held in (module._parameters, module._buffers)
        for key, tensor in held.items()
        if tensor is not None
    ]


def tensor_without_size(model: nn.Module) -> str | None:
    """Finds a tensor of a lazy layer that has not seen an input yet.

    Args:
        model: The model.

    Returns:
        The name of the first one, or None if there is none.
    """
    named = (*model.named_parameters(), *model.named_buffers())
    return next((name for name, tensor in named if is_lazy(tensor)), None)
