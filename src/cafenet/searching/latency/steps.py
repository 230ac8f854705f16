"""Steps of a runtime: the number of channels of which widths should be multiples, found by a few measurements.

Runtimes compute blocks of channels. In steps of 8, widths of 33 to 40 all take the time of 40; and some runtimes have a
slow path for widths that are no multiple of a block. Smallest example: widths of 32, 33, 34, 36, 40, 48 and 64 take 4,
5, 5, 5, 5, 6 and 8 ms. A straight line from 32 to 64 gives 4, 4.125, 4.25, 4.5, 5, 6 and 8 ms. So 33, 34 and 36 take
longer than their channels explain, and 40 and 48 do not: the steps are 8.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from cafenet.searching.latency.measure import (
    Latency,
    LatencyConfig,
    Reference,
    measure_latencies,
    measure_latency,
)
from cafenet.space.width_group import WidthGroup
from cafenet.space.width_space import WidthSpace

_PERIODS = (32, 16, 8)
"""Distances between the two ends of the line; the largest is taken that the most expensive group has room for twice."""
_COSTLY = 0.1
"""Groups count if their ops have at least a tenth of the FLOPs of the most expensive group's."""
_SHARE_OF_STEP = 0.5
"""A width lies on a step if it takes at least half of the time more than the line that whole steps would take."""
_LEAST, _SIGMAS = 0.01, 3.0
"""An excess counts from 1% of the time on, and from three standard errors of the median on."""
_FEWEST, _MOST, _MILLISECONDS = 30, 200, 3000.0
"""Number of rounds: as many as take three seconds, because exports take longer than passes, within these limits."""


@dataclass(frozen=True)
class Steps:
    """The steps of a runtime, with the measurements that show them."""

    divisor: int
    """The number of which widths should be multiples; 1 if the runtime has no steps."""
    groups: tuple[str, ...]
    """Names of the width groups that were varied together, the most expensive first."""
    times_ms: dict[int, float]
    """Measured latency by the number of channels that each group had beyond a multiple of the period."""
    expected_ms: dict[int, float]
    """Latency by the same numbers if it followed the FLOPs between the two ends."""

    def sentence(self, runtime: str) -> str:
        """Say what was found.

        Args:
            runtime: Name of the runtime.

        Returns:
            One sentence.
        """
        if not self.groups:
            return f"Widths are multiples of 1: no width group is wide enough to show steps of {runtime}."
        measured = f"measured at {len(self.times_ms)} widths of {len(self.groups)} groups"
        found = "has no steps" if self.divisor == 1 else f"has steps of {self.divisor} channels"
        return f"Widths are multiples of {self.divisor}: {runtime} {found} ({measured})."


def find_steps(space: WidthSpace, example_inputs: Any, settings: LatencyConfig) -> Steps:
    """Measure the most expensive groups at a few widths, all in turns, and find the steps of the runtime.

    The groups are varied together. Their widths are a multiple of the period plus 0, 1, 2, 4 and so on up to the
    period, so each measurement has as many factors of 2 as its number says.

    Args:
        space: The width space of the model.
        example_inputs: Inputs of the model.
        settings: Conditions of the measurement.

    Returns:
        The steps.

    Raises:
        CafeNetError: If the runtime cannot run the model.

    Example:
        >>> import cafenet, torch
        >>> from cafenet.searching.latency.steps import find_steps
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.Conv2d(16, 2, 3))
        >>> image = torch.zeros(1, 3, 8, 8)
        >>> steps = find_steps(cafenet.trace(model, image), image, cafenet.LatencyConfig(repeats=3))
        >>> steps.groups, list(steps.times_ms)
        (('0',), [0, 1, 2, 4, 8])
    """
    period, groups = _varied(space)
    if not groups:
        return Steps(1, (), {}, {})
    offsets = [0, *(2**power for power in range(int(math.log2(period)) + 1))]
    rows = [_widths(groups, period, offset) for offset in offsets]
    found, repeats = _measured(space, rows, example_inputs, replace(settings, cache=None))
    flops = [space.flops(row) for row in rows]
    rate = (found[-1].median - found[0].median) / max(flops[-1] - flops[0], 1)
    expected = [found[0].median + rate * (each - flops[0]) for each in flops]
    on_a_step = [
        offset
        for offset, latency, straight in zip(offsets[1:-1], found[1:-1], expected[1:-1], strict=True)
        if latency.median - straight > _threshold(latency, expected, offset / period, repeats)
    ]
    return Steps(
        2 * max(on_a_step, default=0) or 1,
        tuple(group.name for group in groups),
        {offset: latency.median for offset, latency in zip(offsets, found, strict=True)},
        dict(zip(offsets, expected, strict=True)),
    )


def _measured(
    space: WidthSpace, rows: list[dict[str, int]], example_inputs: Any, settings: LatencyConfig
) -> tuple[list[Latency], int]:
    """Measure widths in turns with the full model; return their latencies and the number of rounds."""
    models, full = [space.extract(row) for row in rows], space.extract()
    if settings.is_elsewhere:
        return measure_latencies(models, example_inputs, settings), 1
    full_ms = measure_latency(full, example_inputs, settings)
    rounds = int(_MILLISECONDS / ((len(rows) + 1) * full_ms))
    settings = replace(settings, repeats=max(settings.repeats, _FEWEST, min(rounds, _MOST)))
    reference = Reference(full, example_inputs, settings, full_ms)
    try:
        return measure_latencies(models, example_inputs, settings, reference), settings.repeats
    finally:
        reference.close()


def _threshold(latency: Latency, expected: list[float], share: float, repeats: int) -> float:
    """Return the excess over the line from which on a width counts as lying on a step.

    In steps of twice its offset, a width takes as much more than the line as its share of the period is of the rise.
    """
    error = 0.93 * (latency.high - latency.low) / math.sqrt(repeats)  # of the median, if times are normal
    of_step = _SHARE_OF_STEP * share * (expected[-1] - expected[0])
    return max(of_step, _LEAST * expected[0], _SIGMAS * error)


def _varied(space: WidthSpace) -> tuple[int, list[WidthGroup]]:
    """Return the period and the groups to vary, the most expensive first; no groups if all are too narrow."""
    shares = {group.name: space.flops_share(group.name) for group in space.groups if group.divisor == 1}
    ranked = sorted((group for group in space.groups if group.divisor == 1), key=lambda each: -shares[each.name])
    for period in _PERIODS:
        if ranked and ranked[0].channels >= 2 * period:
            most = shares[ranked[0].name]
            return period, [
                group for group in ranked if group.channels >= 2 * period and shares[group.name] >= _COSTLY * most
            ]
    return 1, []


def _widths(groups: list[WidthGroup], period: int, offset: int) -> dict[str, int]:
    """Return widths of the groups: a multiple of the period near to half of the channels, plus the offset."""
    return {
        group.name: max(period * (group.channels // (2 * period)), period, group.min_width) + offset for group in groups
    }
