"""CafeNet finds the right width of every layer of a PyTorch network for a compute budget."""

from importlib.metadata import PackageNotFoundError, version

from cafenet.errors import CafeNetError, ModelNameError, SlimFileError, TraceError, WidthError
from cafenet.models import load_model
from cafenet.slim_file import load, save
from cafenet.space import Frozen, Slot, WidthGroup, WidthSpace
from cafenet.trace import trace
from cafenet.verify import Verification, verify

try:
    __version__ = version("cafenet")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "CafeNetError",
    "Frozen",
    "ModelNameError",
    "SlimFileError",
    "Slot",
    "TraceError",
    "Verification",
    "WidthError",
    "WidthGroup",
    "WidthSpace",
    "load",
    "load_model",
    "save",
    "trace",
    "verify",
]
