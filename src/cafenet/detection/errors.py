"""What goes wrong between a network and its boxes."""

from collections.abc import Sequence

from cafenet.errors import CafeNetError

_SHOWN = 5


class DetectionError(CafeNetError):
    """A backbone, boxes or options that no detector can be built or trained with."""


def named(values: Sequence[str]) -> str:
    """The first five values, and how many more there are."""
    more = f", and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(values[:_SHOWN]) + more
