"""A profile of a model's milliseconds: the time that fewer channels of each width group save, measured.

Smallest example: a model takes 4 ms; with half of the channels of one group it takes 3 ms and with a tenth fewer 3.8
ms, so that the group's half saves 1 ms and its tenth 0.2 ms. In runtimes with steps, a tenth may save nothing, or as
much as a quarter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cafenet.common.tables import Shown
from cafenet.searching.latency.measure import Latency, LatencyConfig, Reference, measure_latencies
from cafenet.space.width_group import WidthGroup
from cafenet.space.width_space import WidthSpace

_SHARES = (0.9, 0.5)


@dataclass(frozen=True)
class Saving:
    """The milliseconds that a narrower group saves."""

    channels: int
    """Number of channels that the group has left."""
    ms: float
    """Latency of the full model minus that of the narrower one: the median."""
    low: float
    """The lower quartile."""
    high: float
    """The upper quartile."""

    @property
    def is_clear(self) -> bool:
        """True if the quartiles are on the same side of zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class GroupProfile:
    """The milliseconds that one width group costs."""

    group: str
    """Name of the group."""
    channels: int
    """Number of the group's channels."""
    tenth: Saving
    """A tenth of the channels fewer, or as near to it as the group's divisor allows."""
    half: Saving
    """Half of the channels fewer."""


@dataclass(frozen=True)
class Profile:
    """The costs of all width groups in one runtime."""

    full_ms: float
    """Latency of the full model."""
    groups: tuple[GroupProfile, ...]
    """The groups, the most expensive first."""
    runtime: str
    """Name of the runtime."""

    def shown(self) -> Shown:
        """Return the table.

        Returns:
            The content; a saving whose quartiles lie on both sides of zero has a `~`.
        """
        rows = [
            (
                each.group,
                each.channels,
                _text(each.half, self.full_ms),
                f"{each.channels} -> {each.tenth.channels}",
                _text(each.tenth, self.full_ms),
            )
            for each in self.groups
        ]
        head = ("width group", "channels", "half of them saves", "a tenth fewer", "saves")
        foot = "~ is within the spread of the measurement"
        return Shown(f"{self.runtime}: {self.full_ms:.3g} ms for the full model", head, rows, foot)


def profile_latency(
    space: WidthSpace,
    example_inputs: Any,
    settings: LatencyConfig,
    progress: Callable[[int, str], None] = lambda number, name: None,
) -> Profile:
    """Measure what each width group costs, in turns with the full model.

    Args:
        space: The width space of the model.
        example_inputs: Inputs of the model.
        settings: Conditions of the measurement.
        progress: Is called with the number of the group and its name before each group is measured.

    Returns:
        The profile.

    Raises:
        CafeNetError: If the runtime cannot run the model.

    Example:
        >>> import cafenet, torch
        >>> from cafenet.searching.latency.profile import profile_latency
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 20, 3), torch.nn.Conv2d(20, 2, 3))
        >>> image = torch.zeros(1, 3, 8, 8)
        >>> profile = profile_latency(cafenet.trace(model, image), image, cafenet.LatencyConfig(repeats=3))
        >>> profile.groups[0].half.channels, profile.groups[0].tenth.channels
        (10, 18)
    """
    full = space.extract()
    (whole,) = measure_latencies([full], example_inputs, settings)
    reference = None if settings.is_elsewhere else Reference(full, example_inputs, settings, whole.median)
    rows = []
    try:
        for number, group in enumerate(space.groups):
            progress(number, group.name)
            widths = [_narrower(group, share) for share in _SHARES]
            models = [space.extract({group.name: width}) for width in widths]
            found = measure_latencies(models, example_inputs, settings, reference)
            tenth, half = (_saving(whole.median, *each) for each in zip(widths, found, strict=True))
            rows.append(GroupProfile(group.name, group.channels, tenth, half))
    finally:
        if reference is not None:
            reference.close()
    runtime = str(settings.made_with().get("runtime", settings.runtime))
    runtime += ", int8" if settings.quantize else ""
    return Profile(whole.median, tuple(sorted(rows, key=lambda each: -each.half.ms)), runtime)


def _narrower(group: WidthGroup, share: float) -> int:
    """Return the width of a group at a share of its channels: a multiple of its divisor, and fewer if it can be."""
    units = min(round(share * group.channels / group.divisor), group.channels // group.divisor - 1)
    return max(units * group.divisor, group.min_width)


def _saving(full_ms: float, channels: int, latency: Latency) -> Saving:
    """Return the difference from the full model."""
    return Saving(channels, full_ms - latency.median, full_ms - latency.high, full_ms - latency.low)


def _text(saving: Saving, full_ms: float) -> str:
    """Return a saving in ms and percent."""
    mark = "" if saving.is_clear else "~ "
    return f"{mark}{saving.ms:.3f} ms ({saving.ms / full_ms:.1%})"
