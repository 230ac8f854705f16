"""The session that every runtime offers: one model that runs as often as it is asked to.

Smallest example: `prepare(model, inputs)` of ONNX Runtime writes a temporary file and opens it; `bind(inputs)` returns
a function that runs it once; `close()` ends the session and removes the file.
"""

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from cafenet.common.extras import install
from cafenet.errors import DeploymentError

Inputs: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a forward."""
Pass: TypeAlias = Callable[[], Sequence[Any]]
"""Runs a model once and returns its raw outputs."""


class Session(Protocol):
    """A model that is ready to run in a runtime."""

    def bind(self, inputs: Inputs) -> Pass:
        """Convert inputs once, so that passes do nothing but run the model.

        Args:
            inputs: Positional and keyword arguments of the model.

        Returns:
            A function that runs the model once.
        """
        ...

    def close(self) -> None:
        """Free what the session holds."""
        ...


def tensors_in(inputs: Inputs) -> list[Tensor]:
    """List the tensors of inputs in the order in which exported files take them.

    Args:
        inputs: Positional and keyword arguments of a model.

    Returns:
        The tensors; other values are constants of a file.
    """
    return [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]


def outputs_of(session: Session, inputs: Inputs) -> list[Tensor]:
    """Run a session once.

    Args:
        session: The session.
        inputs: Positional and keyword arguments of the model.

    Returns:
        Copies of the outputs as tensors.
    """
    return [torch.as_tensor(output).clone() for output in session.bind(inputs)()]


def needed(module: str, extra: str, what: str) -> ModuleType:
    """Import a package that an extra of CafeNet installs.

    Args:
        module: Name of the module.
        extra: The extra.
        what: Name of the feature that needs the module, as the user knows it.

    Returns:
        The module.

    Raises:
        DeploymentError: If the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DeploymentError(
            f"{what} needs {error.name or module}, which is not installed; {install(extra)}"
        ) from error
