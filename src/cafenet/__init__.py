"""CafeNet finds the right width of every layer of a PyTorch network for a compute budget."""

from importlib.metadata import PackageNotFoundError, version

from cafenet.assignment import Bilateral, LocallyFree
from cafenet.bins import Bins, flops_sensitive_bins, uniform_bins
from cafenet.choice import Exact, Race
from cafenet.errors import (
    BinError,
    CafeNetError,
    CheckpointError,
    ModelNameError,
    SlimFileError,
    TraceError,
    TrainingError,
    WidthError,
)
from cafenet.importance import sort_by_importance
from cafenet.models import load_model
from cafenet.optim import OptimizerConfig, ScheduleConfig
from cafenet.slim_file import load, save
from cafenet.space import Frozen, Slot, WidthGroup, WidthSpace
from cafenet.supernet import Supernet
from cafenet.trace import trace
from cafenet.train import TrainConfig, train_supernet
from cafenet.verify import Verification, verify

try:
    __version__ = version("cafenet")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "Bilateral",
    "BinError",
    "Bins",
    "CafeNetError",
    "CheckpointError",
    "Exact",
    "Frozen",
    "LocallyFree",
    "ModelNameError",
    "OptimizerConfig",
    "Race",
    "ScheduleConfig",
    "SlimFileError",
    "Slot",
    "Supernet",
    "TraceError",
    "TrainConfig",
    "TrainingError",
    "Verification",
    "WidthError",
    "WidthGroup",
    "WidthSpace",
    "flops_sensitive_bins",
    "load",
    "load_model",
    "save",
    "sort_by_importance",
    "trace",
    "train_supernet",
    "uniform_bins",
    "verify",
]
