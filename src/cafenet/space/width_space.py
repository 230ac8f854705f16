"""WidthSpace: the widths that a model may have, what they cost, and the slim models that they describe."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt
from torch import nn

from cafenet.common.options import MadeBy, check_arguments
from cafenet.common.suggestions import did_you_mean
from cafenet.common.tables import Shown
from cafenet.errors import WidthError
from cafenet.modules.inputs import call_arguments, running_on
from cafenet.modules.tensors import named_tensors
from cafenet.modules.unwrapping import unwrap
from cafenet.space.cost import Cost
from cafenet.space.extraction import extract
from cafenet.space.layout import IntArray, Layout, Subnet
from cafenet.space.slicing import run_subnet

WidthVector: TypeAlias = Mapping[str, int] | Sequence[int]
"""One width per group: either a dict by group name, in which missing groups have full width, or a sequence in group
order.
"""

ChannelChoice: TypeAlias = Mapping[str, Sequence[int] | IntArray]
"""Explicit channels to keep, by group name. Missing groups keep all of their channels."""


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
                if mine.any():
                    found.append(Slot(tensor, dim, np.flatnonzero(mine)))
        return tuple(found)


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


@dataclass(frozen=True, eq=False)
class WidthSpace:
    """The widths that a traced model may have.

    `cafenet.trace` creates it. FLOPs count one multiply-add as one, for the example inputs as they were given to
    `trace`.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
        >>> space = cafenet.trace(model, torch.zeros(1, 3, 8, 8))
        >>> space.full_widths, space.flops(), space.params()
        ({'0': 16}, 38592, 1898)
        >>> space.flops({"0": 8})
        19296
        >>> space.extract({"0": 8})
        Sequential(
          (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
          (1): ReLU()
          (2): Conv2d(8, 10, kernel_size=(3, 3), stride=(1, 1))
        )
    """

    model: nn.Module = field(repr=False)
    """The traced model, which is never changed."""
    groups: tuple[WidthGroup, ...]
    """All searchable groups, in the order in which the model creates their channels."""
    frozen: tuple[Frozen, ...]
    """The layers whose widths cannot be searched, with the reasons."""
    layout: Layout = field(repr=False)
    """Positions of all units in the tensors and attributes of the model."""
    flops_cost: Cost = field(repr=False)
    """FLOPs as a function of the numbers of units."""
    price_params: Callable[[], Cost] = field(repr=False)
    """Function that builds `params_cost` when it is first needed."""
    outputs: tuple[str, ...] = field(default=(), repr=False)
    """Parts of the model's output that keep their sizes, as given to `trace`. An empty tuple means all parts."""

    def __repr__(self) -> str:
        return self._shown().text()

    def _repr_html_(self) -> str:
        return self._shown().html()

    @overload
    def flops(self, widths: WidthVector | None = None) -> int: ...
    @overload
    def flops(self, widths: npt.NDArray[np.integer[Any]]) -> IntArray: ...
    def flops(self, widths: Any = None) -> int | IntArray:
        """Counts the multiply-adds of one forward pass.

        Args:
            widths: One width vector, an integer array of shape (N, groups) with one width vector per row, or None for
                full width.

        Returns:
            The number of multiply-adds as an int, or an array of N such numbers if an array of shape (N, groups) was
            given.

        Raises:
            WidthError: If a group does not exist, or a width lies outside of its group's limits.

        Examples:
            >>> import numpy as np
            >>> import torch
            >>> from torch import nn
            >>> import cafenet
            >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
            >>> space = cafenet.trace(model, torch.zeros(1, 3, 8, 8))
            >>> space.flops([8])
            19296
            >>> space.flops(np.array([[4], [8], [16]])).tolist()
            [9648, 19296, 38592]
        """
        return self._price(self.flops_cost, widths)

    @overload
    def params(self, widths: WidthVector | None = None) -> int: ...
    @overload
    def params(self, widths: npt.NDArray[np.integer[Any]]) -> IntArray: ...
    def params(self, widths: Any = None) -> int | IntArray:
        """Counts the parameters. A tied parameter counts once, and buffers do not count.

        Args:
            widths: One width vector, an integer array of shape (N, groups) with one width vector per row, or None for
                full width.

        Returns:
            The number of parameters as an int, or an array of N such numbers if an array of shape (N, groups) was
            given.

        Raises:
            WidthError: If a group does not exist, or a width lies outside of its group's limits.
        """
        return self._price(self.params_cost, widths)

    def flops_share(self, group: str) -> float:
        """Computes the share of all FLOPs that lies in ops which read or write a group.

        The shares of all groups add up to more than 1, because most ops read one group and write another.

        Args:
            group: Name of the group.

        Returns:
            A number from 0 to 1.

        Raises:
            WidthError: If no group has that name.
        """
        chosen = np.array([g.name == self.group(group).name for g in self.groups])
        return self.flops_cost.touched(chosen) / max(self.flops(), 1)

    @property
    def searchable_flops_share(self) -> float:
        """Share of all FLOPs that lies in ops which read or write at least one group."""
        return self.flops_cost.touched(np.ones(len(self.groups), dtype=bool)) / max(self.flops(), 1)

    @cached_property
    def params_cost(self) -> Cost:
        """The number of parameters as a function of the numbers of units."""
        return self.price_params()

    @property
    def full_widths(self) -> dict[str, int]:
        """Widths of the traced model itself, by group name."""
        return {group.name: group.channels for group in self.groups}

    @property
    def min_widths(self) -> dict[str, int]:
        """Widths of the smallest subnet, by group name."""
        return {group.name: group.min_width for group in self.groups}

    def group(self, name: str) -> WidthGroup:
        """Finds a group by its name.

        Args:
            name: Name of the group.

        Returns:
            The group.

        Raises:
            WidthError: If no group has that name. The message suggests similar names.
        """
        if name not in self._numbers:
            raise WidthError(f"group {name!r} does not exist; {self._names_hint(name)}")
        return self.groups[self._numbers[name]]

    def widths_dict(self, widths: WidthVector | None) -> dict[str, int]:
        """Checks a width vector and completes it.

        Args:
            widths: One width vector, or None for full width.

        Returns:
            One width for every group, by name, in group order.

        Raises:
            WidthError: If a group does not exist, or a width lies outside of its group's limits.

        Examples:
            >>> import torch
            >>> from torch import nn
            >>> import cafenet
            >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
            >>> cafenet.trace(model, torch.zeros(1, 3, 8, 8)).widths_dict([12])
            {'0': 12}
        """
        row = self._row(widths)
        return {group.name: int(width) for group, width in zip(self.groups, row, strict=True)}

    def subnet(self, widths: WidthVector | None = None, *, channels: ChannelChoice | None = None) -> Subnet:
        """Selects the units that a subnet keeps.

        Args:
            widths: One width vector. The leading channels of each group are kept. None means full width.
            channels: Explicit channels to keep per group, instead of `widths`.

        Returns:
            The kept units of every group.

        Raises:
            WidthError: If both arguments are given, or if one of them does not fit the groups.
        """
        if channels is not None:
            if widths is not None:
                raise WidthError("give either widths or channels, not both")
            return self._subnet_of_channels(channels)
        row = self._row(widths)
        return Subnet(tuple(np.arange(width // g.divisor) for g, width in zip(self.groups, row.tolist(), strict=True)))

    def run(
        self,
        inputs: Any,
        widths: WidthVector | None = None,
        *,
        channels: ChannelChoice | None = None,
        model: nn.Module | None = None,
    ) -> Any:
        """Runs the model at other widths without copying it.

        Args:
            inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments, as for `trace`.
            widths: One width vector. The leading channels of each group are kept. None means full width.
            channels: Explicit channels to keep per group, instead of `widths`.
            model: A model with the same tensors as the traced one, to run in its place.

        Returns:
            The output of the model's own forward.

        Raises:
            WidthError: If the widths or channels do not fit the groups, the tensors of `model` differ from the traced
                ones, or PyTorch refuses the inputs.

        Examples:
            >>> import torch
            >>> from torch import nn
            >>> import cafenet
            >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
            >>> images = torch.randn(1, 3, 8, 8)
            >>> space = cafenet.trace(model, images)
            >>> torch.allclose(space.run(images, [8]), space.extract([8])(images), atol=1e-6)
            True
        """
        args, kwargs = call_arguments(inputs)
        subnet = self.subnet(widths, channels=channels)
        source = self._source(model)
        with running_on("the inputs", WidthError):
            return run_subnet(source, self.layout, subnet, args, kwargs)

    def extract(
        self,
        widths: WidthVector | None = None,
        *,
        channels: ChannelChoice | None = None,
        model: nn.Module | None = None,
    ) -> nn.Module:
        """Builds the slim model: a plain, smaller module of the original class, with the kept part of the weights.

        Args:
            widths: One width vector. The leading channels of each group are kept. None means full width.
            channels: Explicit channels to keep per group, instead of `widths`.
            model: A model with the same tensors as the traced one, from which the weights are taken.

        Returns:
            A new module, which `cafenet.save` can write. It shares no memory with the model.

        Raises:
            WidthError: If the widths or channels do not fit the groups, or the tensors of `model` differ from the
                traced ones.

        Examples:
            >>> import torch
            >>> from torch import nn
            >>> import cafenet
            >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
            >>> space = cafenet.trace(model, torch.zeros(1, 3, 8, 8))
            >>> space.extract({"0": 4})[0]
            Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))
            >>> space.extract(channels={"0": [1, 5, 7]})[2]
            Conv2d(3, 10, kernel_size=(3, 3), stride=(1, 1))
        """
        subnet = self.subnet(widths, channels=channels)
        kept = {
            group.name: np.flatnonzero(np.isin(group.unit_of_channel, units)).tolist()
            for group, units in zip(self.groups, subnet.units, strict=True)
        }
        widths = {name: len(channels) for name, channels in kept.items()}
        units = {group.name: group.unit_of_channel for group in self.groups}
        return extract(self._source(model), self.layout, subnet, widths, kept, units_of_channels=units)

    def _shown(self) -> Shown:
        rows = [
            (group.name, f"{group.channels:,}", f"{self.flops_share(group.name):.1%}", f"{group.sensitivity:,.0f}")
            for group in self.groups
        ]
        return Shown(
            f"Width space of {type(self.model).__name__}: {len(self.groups)} groups",
            ("group", "channels", "FLOPs share", "FLOPs per channel"),
            rows,
            f"{self.flops():,} FLOPs (one multiply-add is one), {self.params():,} parameters, "
            f"{self.searchable_flops_share:.1%} of FLOPs searchable, {len(self.frozen)} layers frozen",
        )

    def _source(self, model: nn.Module | None) -> nn.Module:
        if model is None:
            return self.model
        model = unwrap(model)
        found, traced = ({name: t.shape for name, t in named_tensors(each).items()} for each in (model, self.model))
        wrong = [name for name in self.layout.axes if found.get(name) != traced[name]]
        if wrong:
            raise WidthError(
                f"the model must have the tensors of the traced one, but {wrong[0]} is "
                f"{list(found[wrong[0]]) if wrong[0] in found else 'missing'} instead of {list(traced[wrong[0]])}"
            )
        return model

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {group.name: number for number, group in enumerate(self.groups)}

    @cached_property
    def _limits(self) -> IntArray:
        return np.array([(g.min_width, g.channels, g.divisor) for g in self.groups], dtype=np.int64).reshape(-1, 3)

    def _price(self, cost: Cost, widths: Any) -> int | IntArray:
        rows = self._rows(widths)
        priced = cost.price(rows // self._limits[:, 2] if (self._limits[:, 2] > 1).any() else rows)
        return priced if np.ndim(widths) == 2 else int(priced[0])

    def _row(self, widths: Any) -> IntArray:
        """Checks one width vector of any form."""
        rows = self._rows(widths)
        if np.ndim(widths) == 2:
            raise WidthError(f"one width vector is needed here, but got an array of shape {list(rows.shape)}")
        row: IntArray = rows[0]
        return row

    def _rows(self, widths: Any) -> IntArray:
        """Converts widths of any form into a checked array of shape (N, groups)."""
        if widths is None:
            return self._limits[None, :, 1]
        if isinstance(widths, Mapping):
            unknown = [name for name in widths if name not in self._numbers]
            if unknown:
                raise WidthError(f"group {unknown[0]!r} does not exist; {self._names_hint(unknown[0])}")
            widths = [widths.get(group.name, group.channels) for group in self.groups]
        rows = _array(widths)
        if isinstance(widths, (list, tuple)) and any(isinstance(each, bool) for each in widths):
            raise WidthError(f"widths must be whole numbers of channels, but got bool values: {widths!r:.60}")
        if rows.ndim not in (1, 2) or rows.shape[-1] != len(self.groups):
            raise WidthError(
                f"widths must give one number for each of the {len(self.groups)} groups, but got shape "
                f"{list(rows.shape)}; use a dict by group name, a sequence in group order or an (N, groups) array"
            )
        if not np.issubdtype(rows.dtype, np.integer):
            raise WidthError(f"widths must be whole numbers of channels, but got {rows.dtype} values")
        rows = np.atleast_2d(rows).astype(np.int64, copy=False)
        self._check(rows)
        return rows

    def _check(self, rows: IntArray) -> None:
        if rows.shape[0] == 0:
            return
        low, high, divisor = self._limits.T
        bad = (rows.min(axis=0) < low) | (rows.max(axis=0) > high)
        odd = np.zeros_like(bad)
        coarse = np.flatnonzero(divisor > 1)
        odd[coarse] = (rows[:, coarse] % divisor[coarse]).any(axis=0)
        if not (bad | odd).any():
            return
        problems = []
        for number in np.flatnonzero(bad | odd):
            column, group = rows[:, number], self.groups[number]
            wrong = column[(column < group.min_width) | (column > group.channels) | (column % group.divisor != 0)][0]
            units = f" in multiples of {group.divisor}" if group.divisor > 1 else ""
            problems.append(
                f"group {group.name!r} takes widths from {group.min_width} to {group.channels}{units}, but got {wrong}"
            )
        raise WidthError("; ".join(problems))

    def _subnet_of_channels(self, channels: ChannelChoice) -> Subnet:
        check_arguments(WidthError, channels=(channels, dict[object, object]))
        for name in channels:
            self.group(name)
        chosen = [channels.get(group.name) for group in self.groups]
        return Subnet(tuple(_units_of(group, picked) for group, picked in zip(self.groups, chosen, strict=True)))

    def _names_hint(self, name: str) -> str:
        return did_you_mean(name, self._numbers) or f"groups are {', '.join(list(self._numbers)[:5])}, ..."


TracedSpace = Annotated[WidthSpace, MadeBy("cafenet.trace")]
"""The annotation by which `check_arguments` checks width spaces."""


def _array(numbers: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(numbers)
    except ValueError as error:
        raise WidthError(f"numbers must come in rows of one length, but got {numbers!r}") from error


def _units_of(group: WidthGroup, picked: Sequence[int] | IntArray | None) -> IntArray:
    """Finds the units of explicitly chosen channels; a unit that is chosen only in part is an error."""
    num_units = group.channels // group.divisor
    if picked is None:
        return np.arange(num_units)
    channels = np.unique(_array(picked))
    if not np.issubdtype(channels.dtype, np.integer) or np.shape(picked) != channels.shape:
        raise WidthError(f"channels of group {group.name!r} must be distinct whole numbers, but got {picked!r}")
    if channels[0] < 0 or channels[-1] >= group.channels:
        raise WidthError(
            f"channels of group {group.name!r} must lie in 0 to {group.channels - 1}, but got {channels[0]} to "
            f"{channels[-1]}"
        )
    if channels.size < group.min_width:
        raise WidthError(f"group {group.name!r} keeps at least {group.min_width} channels, but got {channels.size}")
    counts = np.bincount(group.unit_of_channel[channels], minlength=num_units)
    partial = np.flatnonzero((counts > 0) & (counts < group.divisor))
    if partial.size:
        together = np.flatnonzero(group.unit_of_channel == partial[0]).tolist()
        raise WidthError(f"channels {together} of group {group.name!r} go together, but only some of them were given")
    return np.flatnonzero(counts)
