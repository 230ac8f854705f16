"""Inputs of a model: tensors, tuples of positional arguments or dicts of keyword arguments."""

import inspect
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from cafenet.errors import CafeNetError, TraceError, first_line


@contextmanager
def running_on(inputs: str, error: type[CafeNetError]) -> Iterator[None]:
    """Says that a model does not take its inputs, if PyTorch refuses them inside the block.

    Errors that the user's own code raises, and other kinds such as a lack of memory, are passed on unchanged.

    Args:
        inputs: Name of the inputs, for example "the evaluation data".
        error: Class of the error to raise.

    Raises:
        CafeNetError: As an `error`, if a layer of PyTorch raises a `RuntimeError`.
    """
    try:
        yield
    except RuntimeError as problem:
        raised_in = traceback.extract_tb(problem.__traceback__)[-1].filename
        if type(problem) is not RuntimeError or not Path(raised_in).is_relative_to(Path(torch.__file__).parent):
            raise
        raise error(
            f"the model must run on {inputs}, but its forward raised RuntimeError: {first_line(problem)}; check their "
            "shapes and types"
        ) from problem


def call_arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Converts example inputs to positional and keyword arguments.

    Args:
        example_inputs: A tensor, a tuple or list of positional arguments, or a dict of keyword arguments.

    Returns:
        The positional and the keyword arguments.

    Raises:
        TraceError: If the inputs are of another kind, or hold no tensor.
    """
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    if isinstance(example_inputs, Tensor):
        args, kwargs = (example_inputs,), {}
    elif isinstance(example_inputs, Mapping):
        args, kwargs = (), {str(key): value for key, value in example_inputs.items()}
    elif isinstance(example_inputs, (tuple, list)):
        args, kwargs = tuple(example_inputs), {}
    else:
        raise TraceError(
            "example_inputs must be a tensor, a tuple of positional arguments or a dict of keyword arguments, "
            f"but got {type(example_inputs).__name__}"
        )
    if not any(isinstance(leaf, Tensor) for leaf in tree_flatten((args, kwargs))[0]):
        raise TraceError(f"example_inputs must hold at least one tensor, but got {example_inputs!r}")
    return args, kwargs


def unknown_arguments(model: nn.Module, inputs: Any) -> list[str]:
    """Finds the entries of a dict of inputs that the model's forward does not take.

    Args:
        model: The model.
        inputs: Inputs of the model.

    Returns:
        The names of the entries; none for inputs of another kind, or for a forward that takes any.
    """
    takes = inspect.signature(model.forward).parameters
    if not isinstance(inputs, Mapping) or any(each.kind is each.VAR_KEYWORD for each in takes.values()):
        return []
    return [str(key) for key in inputs if key not in takes]


def copied(tree: Any) -> Any:
    """Copies inputs for a model that may write to them.

    Args:
        tree: A tensor, or nested lists, tuples and dicts with tensors.

    Returns:
        The arguments with cloned tensors, in their structure.
    """
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, tree)
