"""One op as the watched run saw it: its call, its price, and what a later run must reproduce."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cafenet.tracing.atoms import DimLabel, Labels

READ = torch.ops.aten._local_scalar_dense.default
"""The op with which code reads a number from a tensor: `int(x)`, `if mask.any()`, `x[start:]`."""


@dataclass(frozen=True, eq=False)
class Call:
    """One op as the run saw it: its arguments, its results, and the module in which it ran."""

    func: torch._ops.OpOverload
    """The op, for example `torch.ops.aten.cat.default`."""
    args: tuple[Any, ...]
    """Positional arguments."""
    kwargs: Mapping[str, Any]
    """Keyword arguments."""
    tensors: list[Tensor]
    """All tensors among the arguments, including those in lists."""
    out: Any
    """The result of the op."""
    outputs: list[Tensor]
    """All tensors among the results."""
    path: str
    """Path of the running module. The model itself is an empty text."""
    module: nn.Module | None
    """The running module, or None outside of all modules."""

    def arg(self, name: str) -> Any:
        """Returns an argument by its name in the op's schema, whether it was passed by position, by keyword or not
        at all.

        Args:
            name: Name of the argument in the schema.

        Returns:
            The value that was passed, or the default.

        Raises:
            KeyError: If the schema has no such argument.
        """
        position, default = _arguments(self.func)[name]
        if position is not None and position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    @property
    def name(self) -> str:
        """The op's short name for use in a reason, for example `add` or `convolution`."""
        return str(self.func.overloadpacket).removeprefix("aten.")


@functools.cache
def _arguments(func: torch._ops.OpOverload) -> dict[str, tuple[int | None, Any]]:
    """Position (None if keyword-only) and default of every argument in the op's schema."""
    return {
        argument.name: (None if argument.kwarg_only else position, argument.default_value)
        for position, argument in enumerate(func._schema.arguments)
    }


@dataclass(frozen=True, eq=False)
class Term:
    """The multiply-adds of one op: a constant times a product of dimension sizes."""

    constant: int
    """The constant factor."""
    sizes: tuple[tuple[int, DimLabel], ...]
    """The size and the label of each dimension in the product."""


@dataclass(frozen=True, eq=False)
class Record:
    """The data of an op that a later run must reproduce."""

    func: torch._ops.OpOverload
    """The op."""
    path: str
    """Path of the running module."""
    inputs: tuple[Labels, ...]
    """Labels of the tensors among the arguments that carry channels."""
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of all results."""
    outputs: tuple[Labels, ...]
    """Labels of all results."""
    read: Any = None
    """The number that the model's code read from a tensor with this op, or None."""
    factors: tuple[float, ...] = ()
    """The numbers with fractions among the arguments, where sizes of heads are followed: a scale must not change."""
