"""CafeNet finds the right width of every layer of a PyTorch network for a compute budget."""

from importlib.metadata import PackageNotFoundError, version

from cafenet.api import Found, search
from cafenet.assignment import Bilateral, LocallyFree
from cafenet.bins import Bins, flops_sensitive_bins, uniform_bins
from cafenet.choice import Exact, Race
from cafenet.distill import DistillConfig
from cafenet.errors import (
    BinError,
    BudgetError,
    CafeNetError,
    CheckpointError,
    DataError,
    ExportError,
    ModelNameError,
    RecipeError,
    ScoringError,
    SlimFileError,
    StoreError,
    TraceError,
    TrainingError,
    WidthError,
)
from cafenet.evaluate import evaluate
from cafenet.export import export_model
from cafenet.importance import sort_by_importance
from cafenet.kernels import keep_kernels
from cafenet.memory import keep_memory
from cafenet.models import load_model
from cafenet.optim import OptimizerConfig, ScheduleConfig
from cafenet.pairing import PairedDifference, compare_paired
from cafenet.retrain import train_model
from cafenet.scoring import ScoringConfig
from cafenet.searching.evolution import Evolution
from cafenet.searching.greedy import Greedy
from cafenet.searching.latency import LatencySettings, measure_latency
from cafenet.searching.random_search import RandomSearch
from cafenet.searching.result import SearchResult
from cafenet.searching.trend import Trend
from cafenet.searching.widths import SearchConfig, search_widths
from cafenet.slim_file import load, save
from cafenet.space import Frozen, Slot, WidthGroup, WidthSpace
from cafenet.stages import StagesConfig
from cafenet.supernet import Supernet
from cafenet.supernet_config import SupernetConfig
from cafenet.trace import trace
from cafenet.train import TrainConfig, train_supernet
from cafenet.verify import Verification, verify

keep_kernels()
keep_memory()

try:
    __version__ = version("cafenet")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "Bilateral",
    "BinError",
    "Bins",
    "BudgetError",
    "CafeNetError",
    "CheckpointError",
    "DataError",
    "DistillConfig",
    "Evolution",
    "Exact",
    "ExportError",
    "Found",
    "Frozen",
    "Greedy",
    "LatencySettings",
    "LocallyFree",
    "ModelNameError",
    "OptimizerConfig",
    "PairedDifference",
    "Race",
    "RandomSearch",
    "RecipeError",
    "ScheduleConfig",
    "ScoringConfig",
    "ScoringError",
    "SearchConfig",
    "SearchResult",
    "SlimFileError",
    "Slot",
    "StagesConfig",
    "StoreError",
    "Supernet",
    "SupernetConfig",
    "TraceError",
    "TrainConfig",
    "TrainingError",
    "Trend",
    "Verification",
    "WidthError",
    "WidthGroup",
    "WidthSpace",
    "compare_paired",
    "evaluate",
    "export_model",
    "flops_sensitive_bins",
    "load",
    "load_model",
    "measure_latency",
    "save",
    "search",
    "search_widths",
    "sort_by_importance",
    "trace",
    "train_model",
    "train_supernet",
    "uniform_bins",
    "verify",
]
