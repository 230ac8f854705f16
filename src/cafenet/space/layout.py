"""Positions of a width space's units in the model's tensors and attributes, and the part of them that a subnet
keeps.
"""

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
    """A module attribute that follows a width: its value is (kept positions of the pattern) x factor // divisor."""

    module: str
    """Path of the module, for example `"layer1.0.conv1"`."""
    attribute: str
    """Name of the attribute, for example `"out_channels"`."""
    pattern: int
    """Number of the pattern in the layout whose kept positions the attribute counts."""
    factor: int = 1
    """Factor of the number of kept positions, for example the groups of a convolution."""
    divisor: int = 1
    """Divisor of the number of kept positions."""
    as_tuple: bool = False
    """Whether the value is a tuple of one number, as `normalized_shape` of a layer norm is."""
    index: int | None = None
    """Index of the entry that follows the pattern, if the attribute is a list or tuple of sizes."""
    whole: tuple[int, ...] = ()
    """All entries of the list or tuple at full width."""

    def value(self, num_kept: int, before: Any = None) -> Any:
        """Computes the value of the attribute.

        Args:
            num_kept: Number of positions that the pattern keeps.
            before: Current value of a list or tuple, in which other entries may have been set before. None means full
                width.

        Returns:
            A number, or a list or tuple of numbers.
        """
        number = num_kept * self.factor // self.divisor
        if self.index is None:
            return (number,) if self.as_tuple else number
        before = self.whole if before is None else before
        return type(before)([*before[: self.index], number, *before[self.index + 1 :]])


@dataclass(frozen=True, eq=False)
class ScaleSlot:
    """Positions of a tensor that are multiplied by the root of the share of features that heads keep.

    Code that divides the scores of attention by the root of the size of a head divides by less in narrower heads.
    Queries that are multiplied by the root of the share make up for that: 16 of 64 features give scores that are
    divided by 4 instead of 8, so queries are halved, and the scale stays that of the full model.
    """

    tensor: str
    """Name of the parameter or buffer, for example `"attn.qkv.weight"`."""
    dim: int
    """Dimension of the tensor."""
    mask: npt.NDArray[np.bool_]
    """One truth value per position: whether it makes queries."""
    pattern: int
    """Number of the pattern whose kept share counts."""

    def factors(self, kept: IntArray, share: float) -> npt.NDArray[np.float64]:
        """Computes the factor of each kept position.

        Args:
            kept: Kept positions of the dimension.
            share: Share of features that heads keep.

        Returns:
            One factor per kept position.
        """
        return np.where(self.mask[kept], share**0.5, 1.0)


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions of all units in the tensors and attributes of a model.

    Units are numbered through all groups. A pattern is an array with the unit at each position of a dimension, or -1
    for a position that is never dropped. Many dimensions share one pattern: a convolution's output, its batch norm and
    the next convolution's input. If positions belong to two units, such as a head and a feature of every head, the
    pattern has two rows, and a position is kept if both of its units are.
    """

    patterns: tuple[IntArray, ...]
    """All distinct patterns."""
    axes: Mapping[str, Mapping[int, int]]
    """Number of the pattern of each dimension, as `axes[tensor][dim]`. Dimensions without units are absent."""
    attributes: tuple[AttributeSlot, ...]
    """Module attributes that follow widths."""
    group_of_unit: IntArray
    """Number of the group of each unit."""
    scales: tuple[ScaleSlot, ...] = ()
    """Weights that make up for a scale of attention which the code computes from the size of a head."""

    @cached_property
    def scales_of(self) -> Mapping[str, tuple[ScaleSlot, ...]]:
        """The weights that make up for a scale, by tensor."""
        found: dict[str, tuple[ScaleSlot, ...]] = {}
        for slot in self.scales:
            found[slot.tensor] = (*found.get(slot.tensor, ()), slot)
        return found

    @property
    def num_units(self) -> int:
        """Number of units in all groups."""
        return int(self.group_of_unit.size)

    @cached_property
    def first_units(self) -> IntArray:
        """Number of each group's first unit, followed by the number of all units."""
        counts = np.bincount(self.group_of_unit)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Subnet:
    """The units that are kept."""

    units: tuple[IntArray, ...]
    """Kept units of each group as rising numbers, counted from 0 inside the group."""

    def __repr__(self) -> str:
        return self._shown().text()

    def _repr_html_(self) -> str:
        return self._shown().html()

    def _shown(self) -> Shown:
        rows = [(number, len(units), ranges(units.tolist())) for number, units in enumerate(self.units)]
        return Shown(f"Subnet of {len(rows)} groups", ("group", "units kept", "which"), rows)

    def keeps(self, layout: Layout) -> npt.NDArray[np.bool_]:
        """Builds a mask over all units.

        Args:
            layout: The layout, which numbers the units through all groups.

        Returns:
            One truth value per unit, and a last one that stands for fixed positions and is always true.
        """
        mask = np.zeros(layout.num_units + 1, dtype=bool)
        mask[-1] = True
        sizes = [units.size for units in self.units]
        if sizes:
            mask[np.concatenate(self.units) + np.repeat(layout.first_units[:-1], sizes)] = True
        return mask


class Cut:
    """The kept positions of a dimension. A run of neighbours is cut as a view, any other choice by one gather.

    Args:
        positions: Kept positions in rising order.
        size: Size of the whole dimension.
    """

    __slots__ = ("_index", "is_run", "is_whole", "positions", "start")

    def __init__(self, positions: IntArray, size: int) -> None:
        """Notes whether the positions are a run, and whether they are all."""
        self.positions = positions
        self.start = int(positions[0]) if positions.size else 0
        self.is_run = positions.size > 0 and int(positions[-1]) - self.start + 1 == positions.size
        self.is_whole = positions.size == size
        self._index: Tensor | None = None

    def apply(self, tensor: Tensor, dim: int) -> Tensor:
        """Takes the kept positions of one dimension; gradients flow back to the full tensor.

        Args:
            tensor: The full tensor.
            dim: Dimension to cut.

        Returns:
            The part, as a view if the positions are a run.
        """
        if self.is_whole:
            return tensor
        if self.is_run:
            return tensor.narrow(dim, self.start, self.positions.size)
        return tensor.index_select(dim, self._index_on(tensor.device))

    def assign(self, tensor: Tensor, dim: int, part: Tensor) -> None:
        """Writes a part back in place to the positions from which `apply` took it.

        Args:
            tensor: The full tensor, which is changed.
            dim: Dimension that was cut.
            part: The values to write.
        """
        if self.is_run:
            tensor.narrow(dim, self.start, self.positions.size).copy_(part)
        else:
            tensor.index_copy_(dim, self._index_on(tensor.device), part)

    def _index_on(self, device: torch.device) -> Tensor:
        """The positions as a tensor, which is shared by all tensors that are cut in the same way."""
        if self._index is None or self._index.device != device:
            self._index = torch.from_numpy(self.positions).to(device)
        return self._index


def cuts(layout: Layout, subnet: Subnet) -> tuple[Cut, ...]:
    """Computes the kept positions of every pattern.

    Args:
        layout: The layout.
        subnet: The units to keep.

    Returns:
        One cut per pattern, in the order of `layout.patterns`.
    """
    keep = subnet.keeps(layout)
    return tuple(Cut(kept_positions(pattern, keep), num_positions(pattern)) for pattern in layout.patterns)


def kept_positions(pattern: IntArray, keep: npt.NDArray[np.bool_]) -> IntArray:
    """Computes the positions of a dimension whose units are all kept.

    Args:
        pattern: The unit at each position, in one row or two.
        keep: Whether each unit is kept, and a last value for fixed positions.

    Returns:
        The positions in rising order.
    """
    kept = keep[pattern]
    return np.flatnonzero(kept if kept.ndim == 1 else kept.all(axis=0))


def num_positions(pattern: IntArray) -> int:
    """Counts the positions of a dimension.

    Args:
        pattern: The unit at each position, in one row or two.

    Returns:
        The size of the dimension at full width.
    """
    return int(pattern.shape[-1])
