"""CafeNet finds the right width of every layer of a PyTorch network for a compute budget."""

from importlib.metadata import PackageNotFoundError, version

from cafenet.common.interrupts import guard_command

guard_command()  # before the imports that take seconds

from cafenet.common.onednn import keep_kernels
from cafenet.errors import CafeNetError
from cafenet.models import load_model
from cafenet.pipeline.options import SearchOptions
from cafenet.pipeline.result import SearchResult
from cafenet.pipeline.search import search
from cafenet.pipeline.stages import StagesConfig
from cafenet.scoring.evaluation import evaluate
from cafenet.scoring.scorer import ScoringConfig
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.algorithms.greedy import Greedy
from cafenet.searching.algorithms.random_search import RandomSearch
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.latency.measure import LatencyConfig
from cafenet.searching.width_search import search_widths
from cafenet.space.export import export
from cafenet.space.slim_file import load, save
from cafenet.space.verification import verify
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.build import SupernetConfig
from cafenet.supernet.plain_training import train_model
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.train import TrainConfig, train_supernet
from cafenet.tracing.tracer import trace
from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig

keep_kernels()

try:
    __version__ = version("cafenet")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "CafeNetError",
    "Evolution",
    "Greedy",
    "LatencyConfig",
    "OptimizerConfig",
    "RandomSearch",
    "SamplingConfig",
    "ScheduleConfig",
    "ScoringConfig",
    "SearchOptions",
    "SearchResult",
    "StagesConfig",
    "Supernet",
    "SupernetConfig",
    "TrainConfig",
    "Trend",
    "WidthSpace",
    "evaluate",
    "export",
    "load",
    "load_model",
    "save",
    "search",
    "search_widths",
    "trace",
    "train_model",
    "train_supernet",
    "verify",
]
