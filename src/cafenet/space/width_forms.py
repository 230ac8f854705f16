"""The forms in which a user writes widths and channels, read and checked against the groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cafenet.common.options import check_arguments
from cafenet.common.suggestions import did_you_mean
from cafenet.errors import WidthError
from cafenet.space.layout import IntArray
from cafenet.space.width_group import WidthGroup

WidthVector: TypeAlias = Mapping[str, int] | Sequence[int]
"""One width per group: either a dict by group name, in which missing groups have full width, or a sequence in group
order.
"""
ChannelChoice: TypeAlias = Mapping[str, Sequence[int] | IntArray]
"""Explicit channels to keep, by group name. Missing groups keep all of their channels."""


@dataclass(frozen=True, eq=False)
class WidthForms:
    """Reads the widths and channels that a user gives for some groups, in any form."""

    groups: tuple[WidthGroup, ...]
    """The groups of a width space, in its order."""

    def group(self, name: str) -> WidthGroup:
        """Finds a group by its name.

        Args:
            name: Name of the group.

        Returns:
            The group.

        Raises:
            WidthError: If no group has that name.
        """
        if name not in self._numbers:
            hint = did_you_mean(name, self._numbers) or f"groups are {', '.join(list(self._numbers)[:5])}, ..."
            raise WidthError(f"group {name!r} does not exist; {hint}")
        return self.groups[self._numbers[name]]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {group.name: number for number, group in enumerate(self.groups)}

    @cached_property
    def limits(self) -> IntArray:
        """Smallest width, number of channels and divisor of each group, one row per group."""
        return np.array([(g.min_width, g.channels, g.divisor) for g in self.groups], dtype=np.int64).reshape(-1, 3)

    def row(self, widths: Any) -> IntArray:
        """Checks one width vector of any form.

        Args:
            widths: A dict by group name, a sequence in group order, or None for full width.

        Returns:
            One width per group.

        Raises:
            WidthError: If a group does not exist, or a width lies outside of its group's limits.
        """
        rows = self.rows(widths)
        if np.ndim(widths) == 2:
            raise WidthError(f"one width vector is needed here, but got an array of shape {list(rows.shape)}")
        row: IntArray = rows[0]
        return row

    def rows(self, widths: Any) -> IntArray:
        """Converts widths of any form into a checked array.

        Args:
            widths: One width vector, an array with one width vector per row, or None for full width.

        Returns:
            An array of shape (N, groups).

        Raises:
            WidthError: If a group does not exist, or a width lies outside of its group's limits.
        """
        if widths is None:
            return self.limits[None, :, 1]
        if isinstance(widths, Mapping):
            for name in widths:
                self.group(name)
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
        low, high, divisor = self.limits.T
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

    def units(self, channels: ChannelChoice) -> tuple[IntArray, ...]:
        """Finds the units of explicitly chosen channels.

        Args:
            channels: Channels to keep, by group name. Missing groups keep all of their channels.

        Returns:
            The numbers of the kept units of every group.

        Raises:
            WidthError: If a group does not exist, or the channels do not fit it.
        """
        check_arguments(WidthError, channels=(channels, dict[object, object]))
        for name in channels:
            self.group(name)
        chosen = [channels.get(group.name) for group in self.groups]
        return tuple(_units_of(group, picked) for group, picked in zip(self.groups, chosen, strict=True))


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
