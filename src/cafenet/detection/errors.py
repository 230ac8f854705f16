"""What goes wrong between a network and its boxes."""

from cafenet.errors import CafeNetError


class DetectionError(CafeNetError):
    """A backbone, boxes or options that no detector can be built or trained with."""
