"""CafeNet finds the right width of every layer of a PyTorch network for a compute budget."""

from importlib.metadata import PackageNotFoundError, version

from cafenet.common.interrupts import guard_command

guard_command()  # before the imports that take seconds

from cafenet.common.onednn import keep_kernels
from cafenet.common.statistics import PairedDifference, compare_paired
from cafenet.errors import (
    BinError,
    BudgetError,
    CafeNetError,
    CheckpointError,
    DataError,
    ExportError,
    ModelNameError,
    RecipeError,
    RunFileError,
    ScoringError,
    SlimFileError,
    StoreError,
    TraceError,
    TrainingError,
    WidthError,
)
from cafenet.models import load_model
from cafenet.pipeline.options import SearchOptions
from cafenet.pipeline.result import SearchResult, SearchResults
from cafenet.pipeline.search import search
from cafenet.pipeline.stages import StagesConfig
from cafenet.scoring.evaluation import evaluate
from cafenet.scoring.scorer import ScoringConfig
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.algorithms.greedy import Greedy
from cafenet.searching.algorithms.random_search import RandomSearch
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.latency.measure import LatencyConfig, measure_latency
from cafenet.searching.width_search import SearchConfig, search_widths
from cafenet.space.bins import Bins, flops_sensitive_bins, uniform_bins
from cafenet.space.export import export_model
from cafenet.space.importance import sort_by_importance
from cafenet.space.slim_file import load, save
from cafenet.space.verification import Verification, verify
from cafenet.space.width_space import Frozen, Slot, WidthGroup, WidthSpace
from cafenet.supernet.build import SupernetConfig
from cafenet.supernet.candidate_choice import Exact, Race
from cafenet.supernet.plain_training import train_model
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.sharing import Bilateral, LocallyFree
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.train import TrainConfig, train_supernet
from cafenet.tracing.tracer import trace
from cafenet.training.distillation import DistillConfig
from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig

keep_kernels()

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
    "Frozen",
    "Greedy",
    "LatencyConfig",
    "LocallyFree",
    "ModelNameError",
    "OptimizerConfig",
    "PairedDifference",
    "Race",
    "RandomSearch",
    "RecipeError",
    "RunFileError",
    "SamplingConfig",
    "ScheduleConfig",
    "ScoringConfig",
    "ScoringError",
    "SearchConfig",
    "SearchOptions",
    "SearchResult",
    "SearchResults",
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
