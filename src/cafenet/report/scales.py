"""Scales of axes: the range of the values, ticks at round numbers, and places as shares of the axis."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`."""

    low: float
    """Value at the beginning of the axis."""
    high: float
    """Value at its end."""
    ticks: tuple[float, ...]
    """Round values that are written beside it."""

    def share(self, value: float) -> float:
        """Return the place of a value: 0 at the beginning of the axis, 1 at its end.

        Args:
            value: The value.

        Returns:
            The share of the axis.
        """
        return (value - self.low) / (self.high - self.low)

    def text(self, tick: float) -> str:
        """Return a tick with as many decimals as tell neighbouring ticks apart.

        Args:
            tick: The tick.

        Returns:
            The text.
        """
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else self.high - self.low
        decimals = next((each for each in range(9) if abs(step * 10**each - round(step * 10**each)) < 1e-6), 9)
        return f"{tick:,.{decimals}f}"


def scale_of(values: Iterable[float], num_ticks: int = 5, *, from_zero: bool = False, margin: float = 0.06) -> Scale:
    """Return a scale over values, with a margin on both sides.

    Args:
        values: The values, at least one.
        num_ticks: Number of ticks, about.
        from_zero: True if the scale begins at 0.
        margin: Margin as a share of the range.

    Returns:
        The scale.

    Example:
        >>> from cafenet.report.scales import scale_of
        >>> scale_of([0, 10], margin=0).ticks
        (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)
    """
    found = list(values)
    low, high = (0.0 if from_zero else min(found)), max(found)
    reach = (high - low) or max(abs(high) * 0.1, 1e-3)
    high += margin * reach
    if not from_zero:
        low -= margin * reach
    high = max(high, low + 1e-9)
    step = _round_step((high - low) / num_ticks)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return Scale(low, high, tuple(number * step for number in range(first, last + 1)))


def _round_step(step: float) -> float:
    """Return the next of 1, 2, 2.5, 5, 10, ... above a step."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * (1 - 1e-9))


def apart(places: list[float], gap: float, low: float, high: float) -> list[float]:
    """Move places as little as needed, so that neighbours are `gap` apart and all lie within a range.

    Args:
        places: The places, in any order.
        gap: Smallest distance of two neighbours.
        low: Beginning of the range.
        high: End of the range.

    Returns:
        The new places, in the order of the old ones.

    Example:
        >>> from cafenet.report.scales import apart
        >>> apart([10.0, 12.0], 10.0, 0.0, 100.0)
        [6.0, 16.0]
    """
    order = sorted(range(len(places)), key=places.__getitem__)
    blocks: list[list[float]] = []  # [sum of the wished starts, number of places]: neighbours that touch move together
    for number in order:
        blocks.append([places[number], 1])
        while len(blocks) > 1 and _start(blocks[-2]) + gap * blocks[-2][1] > _start(blocks[-1]):
            wished, size = blocks.pop()
            blocks[-1][0] += wished - gap * size * blocks[-1][1]
            blocks[-1][1] += size
    moved, reached = [], low
    for block in blocks:
        start = max(reached, min(_start(block), high - gap * (block[1] - 1)))
        moved += [start + gap * number for number in range(int(block[1]))]
        reached = moved[-1] + gap
    return [place for _, place in sorted(zip(order, moved, strict=True))]


def flops_unit(values: Iterable[float]) -> tuple[float, str]:
    """Return the unit in which FLOPs are shown on an axis.

    Args:
        values: The FLOPs.

    Returns:
        The size of the unit, and the title of the axis.

    Example:
        >>> from cafenet.report.scales import flops_unit
        >>> flops_unit([2_840, 11_420]), flops_unit([3e6, 9e5])
        ((1000.0, 'FLOPs, thousands'), (1000000.0, 'FLOPs, millions'))
    """
    most = max(values, default=0.0)
    for name, size in (("billions", 1e9), ("millions", 1e6), ("thousands", 1e3)):
        if most >= size:
            return size, f"FLOPs, {name}"
    return 1.0, "FLOPs"


def side_by_side(shares: Sequence[float], gap: float = 11.0, *, near: float = 0.02) -> list[float]:
    """Return by how many pixels marks at nearly the same place are moved, so that all of them are seen.

    Args:
        shares: Places on an axis, from 0 to 1.
        gap: Distance of two neighbours afterwards.
        near: Largest distance at which a place counts as the same as the one before it.

    Returns:
        One shift per place, in its order.

    Example:
        >>> from cafenet.report.scales import side_by_side
        >>> side_by_side([0.5, 1.0, 0.501], 10.0)
        [-5.0, 0.0, 5.0]
    """
    groups: list[list[int]] = []
    for number in sorted(range(len(shares)), key=shares.__getitem__):
        if groups and shares[number] - shares[groups[-1][-1]] <= near:
            groups[-1].append(number)
        else:
            groups.append([number])
    shifts = [0.0] * len(shares)
    for group in groups:
        for place, number in enumerate(sorted(group)):
            shifts[number] = gap * (place - (len(group) - 1) / 2)
    return shifts


def _start(block: list[float]) -> float:
    """Return the first place of a block whose places are on average where they wish to be."""
    return block[0] / block[1]
