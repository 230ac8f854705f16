"""WidthSpace: which widths a model may have, what they cost, and the models that they are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt
from torch import nn

from cafenet.common.suggestions import did_you_mean
from cafenet.common.tables import Shown
from cafenet.errors import WidthError
from cafenet.modules.calling import call_arguments, named_tensors, unwrap
from cafenet.space.cost import Cost
from cafenet.space.extraction import extract
from cafenet.space.layout import IntArray, Layout, Subnet
from cafenet.space.slicing import run_subnet

WidthVector: TypeAlias = Mapping[str, int] | Sequence[int]
"""One width a group: a dict by group name (what is missing is at full width) or a sequence in group order."""

ChannelChoice: TypeAlias = Mapping[str, Sequence[int] | IntArray]
"""Explicit channels to keep, by group name; groups that are missing keep all."""


@dataclass(frozen=True, eq=False)
class Slot:
    """The positions of one parameter or buffer dimension that belong to a group."""

    tensor: str
    dim: int
    positions: IntArray


@dataclass(frozen=True, eq=False)
class WidthGroup:
    """Channels that are decided together as one width.

    In `conv(3 -> 16), bn, relu, conv(16 -> 10)` the 16 channels between the convolutions are one group: `channels`
    16, `divisor` 1, slots in both convolutions and in the batch norm. After `chunk(2)` the i-th channels of both
    halves go together: `divisor` 2, and widths are multiples of 2.
    """

    name: str
    channels: int
    divisor: int
    min_width: int
    sensitivity: float
    """FLOPs that one channel causes at full width, summed over every op that reads or writes it."""
    mixes: bool
    """Whether something normalises or reduces across the channels, so that dropping one changes the others."""
    unit_of_channel: IntArray = field(repr=False)
    _layout: Layout = field(repr=False)
    _number: int = field(repr=False)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Every place in the model's tensors that belongs to this group."""
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
    """A layer whose width cannot be searched, and why."""

    name: str
    channels: int
    reason: str
    parameters: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """Names of the parameters that stay whole because of this layer: its own, and those of norms behind it."""


@dataclass(frozen=True, eq=False)
class WidthSpace:
    """The widths that a traced model may have. FLOPs count one multiply-add as one, for the example inputs as given."""

    model: nn.Module = field(repr=False)
    groups: tuple[WidthGroup, ...]
    frozen: tuple[Frozen, ...]
    layout: Layout = field(repr=False)
    flops_cost: Cost = field(repr=False)
    price_params: Callable[[], Cost] = field(repr=False)
    """Builds `params_cost` when it is first asked for."""
    outputs: tuple[str, ...] = field(default=(), repr=False)
    """The parts of what the model returns that keep their sizes, as `trace` was told; none stands for all."""

    def __repr__(self) -> str:
        return self._shown().text()

    def _repr_html_(self) -> str:
        return self._shown().html()

    @overload
    def flops(self, widths: WidthVector | None = None) -> int: ...
    @overload
    def flops(self, widths: npt.NDArray[np.integer[Any]]) -> IntArray: ...
    def flops(self, widths: Any = None) -> int | IntArray:
        """Multiply-adds of one width vector, or of each row of an (N, groups) integer array."""
        return self._price(self.flops_cost, widths)

    @overload
    def params(self, widths: WidthVector | None = None) -> int: ...
    @overload
    def params(self, widths: npt.NDArray[np.integer[Any]]) -> IntArray: ...
    def params(self, widths: Any = None) -> int | IntArray:
        """Number of parameters (tied ones once, buffers not) of one width vector, or of each row of an array."""
        return self._price(self.params_cost, widths)

    def flops_share(self, group: str) -> float:
        """The share of all FLOPs that lies in ops which the group reads or writes."""
        chosen = np.array([g.name == self.group(group).name for g in self.groups])
        return self.flops_cost.touched(chosen) / max(self.flops(), 1)

    @property
    def searchable_flops_share(self) -> float:
        """The share of all FLOPs that lies in ops which some group reads or writes."""
        return self.flops_cost.touched(np.ones(len(self.groups), dtype=bool)) / max(self.flops(), 1)

    @cached_property
    def params_cost(self) -> Cost:
        """The number of parameters as a function of widths."""
        return self.price_params()

    @property
    def full_widths(self) -> dict[str, int]:
        """The model as it is."""
        return {group.name: group.channels for group in self.groups}

    @property
    def min_widths(self) -> dict[str, int]:
        """The smallest subnet."""
        return {group.name: group.min_width for group in self.groups}

    def group(self, name: str) -> WidthGroup:
        """The group of that name."""
        if name not in self._numbers:
            raise WidthError(f"group {name!r} does not exist; {self._names_hint(name)}")
        return self.groups[self._numbers[name]]

    def widths_dict(self, widths: WidthVector | None) -> dict[str, int]:
        """A width vector in full: one checked width for every group, by name, in group order."""
        row = self._row(widths)
        return {group.name: int(width) for group, width in zip(self.groups, row, strict=True)}

    def subnet(self, widths: WidthVector | None = None, *, channels: ChannelChoice | None = None) -> Subnet:
        """What is kept: the leading channels of each width, or explicit channels per group."""
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
        """The model's output at these widths, without copying the model; inputs as for `trace`."""
        args, kwargs = call_arguments(inputs)
        subnet = self.subnet(widths, channels=channels)
        return run_subnet(self._source(model), self.layout, subnet, args, kwargs)

    def extract(
        self,
        widths: WidthVector | None = None,
        *,
        channels: ChannelChoice | None = None,
        model: nn.Module | None = None,
    ) -> nn.Module:
        """A plain, smaller module of the original class, with its share of the weights of the model (or of `model`)."""
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
        """One width vector in any form, checked."""
        rows = self._rows(widths)
        if np.ndim(widths) == 2:
            raise WidthError(f"one width vector is needed here, but got an array of shape {list(rows.shape)}")
        row: IntArray = rows[0]
        return row

    def _rows(self, widths: Any) -> IntArray:
        """Any form of widths as a checked (N, groups) array."""
        if widths is None:
            return self._limits[None, :, 1]
        if isinstance(widths, Mapping):
            unknown = [name for name in widths if name not in self._numbers]
            if unknown:
                raise WidthError(f"group {unknown[0]!r} does not exist; {self._names_hint(unknown[0])}")
            widths = [widths.get(group.name, group.channels) for group in self.groups]
        rows = _array(widths)
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
        for name in channels:
            self.group(name)
        chosen = [channels.get(group.name) for group in self.groups]
        return Subnet(tuple(_units_of(group, picked) for group, picked in zip(self.groups, chosen, strict=True)))

    def _names_hint(self, name: str) -> str:
        return did_you_mean(name, self._numbers) or f"groups are {', '.join(list(self._numbers)[:5])}, ..."


def _array(numbers: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(numbers)
    except ValueError as error:
        raise WidthError(f"numbers must come in rows of one length, but got {numbers!r}") from error


def _units_of(group: WidthGroup, picked: Sequence[int] | IntArray | None) -> IntArray:
    """The units that explicit channels mean, whole ones only."""
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
