"""Where the units of a width space lie in the model's tensors and attributes, and what one subnet keeps of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cafenet.common.tables import Shown, ranges

IntArray: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AttributeSlot:
    """A module attribute that follows a width: its value is (positions kept in the pattern) x factor // divisor.

    Where the attribute is a list or tuple of sizes, `index` says which of them follows the pattern.
    """

    module: str
    attribute: str
    pattern: int
    factor: int = 1
    divisor: int = 1
    as_tuple: bool = False
    index: int | None = None
    whole: tuple[int, ...] = ()
    """All sizes of the list or tuple at full width."""

    def value(self, num_kept: int, before: Any = None) -> Any:
        """The attribute's value when the pattern keeps that many positions.

        before: its value so far, where other entries of a list or tuple may have been set.
        """
        number = num_kept * self.factor // self.divisor
        if self.index is None:
            return (number,) if self.as_tuple else number
        before = self.whole if before is None else before
        return type(before)([*before[: self.index], number, *before[self.index + 1 :]])


@dataclass(frozen=True, eq=False)
class Layout:
    """Units are numbered through all groups; a pattern tells the unit at each position of a dimension (-1: fixed).

    `axes[tensor][dim]` is the number of that dimension's pattern. Many dimensions share one pattern: a convolution's
    output, its batch norm and the next convolution's input.
    """

    patterns: tuple[IntArray, ...]
    axes: Mapping[str, Mapping[int, int]]
    attributes: tuple[AttributeSlot, ...]
    group_of_unit: IntArray

    @property
    def num_units(self) -> int:
        return int(self.group_of_unit.size)

    @cached_property
    def first_units(self) -> IntArray:
        """The number of each group's first unit, and the number of units at the end."""
        counts = np.bincount(self.group_of_unit)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Subnet:
    """What is kept: per group the sorted numbers of its units, counted from 0 inside the group."""

    units: tuple[IntArray, ...]

    def __repr__(self) -> str:
        return self._shown().text()

    def _repr_html_(self) -> str:
        return self._shown().html()

    def _shown(self) -> Shown:
        rows = [(number, len(units), ranges(units.tolist())) for number, units in enumerate(self.units)]
        return Shown(f"Subnet of {len(rows)} groups", ("group", "units kept", "which"), rows)

    def keeps(self, layout: Layout) -> npt.NDArray[np.bool_]:
        """A mask over all units; its last entry stands for fixed positions and is always true."""
        mask = np.zeros(layout.num_units + 1, dtype=bool)
        mask[-1] = True
        sizes = [units.size for units in self.units]
        if sizes:
            mask[np.concatenate(self.units) + np.repeat(layout.first_units[:-1], sizes)] = True
        return mask


class Cut:
    """The positions of a dimension that are kept: a run is a view, anything else one gather."""

    __slots__ = ("_index", "is_run", "is_whole", "positions", "start")

    def __init__(self, positions: IntArray, size: int) -> None:
        """size: that of the whole dimension."""
        self.positions = positions
        self.start = int(positions[0]) if positions.size else 0
        self.is_run = positions.size > 0 and int(positions[-1]) - self.start + 1 == positions.size
        self.is_whole = positions.size == size
        self._index: Tensor | None = None

    def apply(self, tensor: Tensor, dim: int) -> Tensor:
        """The kept positions of one dimension; gradients flow back to the full tensor."""
        if self.is_whole:
            return tensor
        if self.is_run:
            return tensor.narrow(dim, self.start, self.positions.size)
        return tensor.index_select(dim, self._index_on(tensor.device))

    def assign(self, tensor: Tensor, dim: int, part: Tensor) -> None:
        """Write a part back to where `apply` took it from, in place."""
        if self.is_run:
            tensor.narrow(dim, self.start, self.positions.size).copy_(part)
        else:
            tensor.index_copy_(dim, self._index_on(tensor.device), part)

    def _index_on(self, device: torch.device) -> Tensor:
        """The positions as a tensor, which all tensors that are cut alike share."""
        if self._index is None or self._index.device != device:
            self._index = torch.from_numpy(self.positions).to(device)
        return self._index


def cuts(layout: Layout, subnet: Subnet) -> tuple[Cut, ...]:
    """One cut for every pattern of the layout."""
    keep = subnet.keeps(layout)
    return tuple(Cut(keep[pattern].nonzero()[0], pattern.size) for pattern in layout.patterns)
