"""Errors of detection."""

from collections.abc import Sequence

from cafenet.errors import CafeNetError

_SHOWN = 5


class DetectionError(CafeNetError):
    """A backbone, boxes or options with which no detector can be built or trained."""


def named(values: Sequence[str]) -> str:
    """Return the first five values, and how many more there are.

    Args:
        values: The values.

    Returns:
        The text for a message.
    """
    more = f", and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(values[:_SHOWN]) + more
