"""The parts of a width space: width groups with their slots, and frozen layers."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cafenet.space.layout import IntArray, Layout


@dataclass(frozen=True, eq=False)
class Slot:
    """The positions of one parameter or buffer dimension that belong to a group.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
        >>> space = cafenet.trace(model, torch.zeros(1, 3, 8, 8))
        >>> [(slot.tensor, slot.dim, len(slot.positions)) for slot in space.groups[0].slots]
        [('0.weight', 0, 16), ('0.bias', 0, 16), ('2.weight', 1, 16)]
    """

    tensor: str
    """Name of the parameter or buffer, for example `"conv1.weight"`."""
    dim: int
    """Dimension of the tensor."""
    positions: IntArray
    """Positions along that dimension that belong to the group, in rising order."""


@dataclass(frozen=True, eq=False)
class WidthGroup:
    """Channels whose number is decided together, as one width.

    In `conv(3 -> 16), bn, relu, conv(16 -> 10)` the 16 channels between the convolutions are one group. It has 16
    `channels`, the `divisor` 1, and slots in both convolutions and in the batch norm. If the channels pass through
    `chunk(2)`, the i-th channels of both halves are kept or dropped together: the `divisor` is then 2, and widths are
    multiples of 2.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
        >>> group = cafenet.trace(model, torch.zeros(1, 3, 8, 8)).group("0")
        >>> group.channels, group.divisor, group.min_width, group.sensitivity
        (16, 1, 1, 2412.0)
    """

    name: str
    """Name of the layer that creates the channels, for example `"layer1.0.conv1"`."""
    channels: int
    """Number of channels at full width."""
    divisor: int
    """Number of channels that are kept or dropped together. Widths are multiples of it."""
    min_width: int
    """Smallest width of the group, in channels."""
    sensitivity: float
    """FLOPs that one channel causes at full width, summed over every op that reads or writes it."""
    mixes: bool
    """Whether some op normalises or reduces across the channels, so that dropping one channel changes the others."""
    unit_of_channel: IntArray = field(repr=False)
    """Number of the unit that each channel belongs to, counted from 0 inside the group."""
    _layout: Layout = field(repr=False)
    _number: int = field(repr=False)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """All positions in the model's parameters and buffers that belong to this group."""
        found = []
        for tensor, dims in self._layout.axes.items():
            for dim, pattern in dims.items():
                units = self._layout.patterns[pattern]
                mine = (units >= 0) & (self._layout.group_of_unit[units] == self._number)
                mine = mine if mine.ndim == 1 else mine.any(axis=0)
                if mine.any():
                    found.append(Slot(tensor, dim, np.flatnonzero(mine)))
        return tuple(found)

    @cached_property
    def crosses_another(self) -> bool:
        """Whether its channels also belong to units of another group, as heads and their features do."""
        crossed = (pattern for pattern in self._layout.patterns if pattern.ndim > 1)
        return any(
            (self._layout.group_of_unit[row[row >= 0]] == self._number).any() for each in crossed for row in each
        )


@dataclass(frozen=True)
class Frozen:
    """A layer whose width cannot be searched, and the reason.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
        >>> space = cafenet.trace(model, torch.zeros(1, 3, 8, 8))
        >>> [(frozen.name, frozen.channels, frozen.reason) for frozen in space.frozen]
        [('2', 10, 'is an output of the model')]
    """

    name: str
    """Name of the layer, or of the parameter if it belongs to no layer."""
    channels: int
    """Number of output channels of the layer."""
    reason: str
    """Clause that completes a sentence about the layer, for example "is an output of the model"."""
    parameters: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """Names of the parameters that stay whole because of this layer: its own, and those of norms after it."""
