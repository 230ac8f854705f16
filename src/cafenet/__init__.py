"""CafeNet finds the right width of every layer of a PyTorch network for a compute budget.

Importing the package takes some milliseconds: a name is imported from its module, and torch with it, when it is first
used.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cafenet.common.interrupts import guard_command

guard_command()  # before the imports that take seconds

from cafenet.common.memory import keep_memory
from cafenet.common.onednn import keep_kernels
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

keep_kernels()  # before torch's first operation
keep_memory()

if TYPE_CHECKING:  # for checkers and editors; `_MODULE_OF` says the same to Python
    from cafenet.common.statistics import PairedDifference, compare_paired
    from cafenet.models import load_model
    from cafenet.pipeline.search import Found, search
    from cafenet.pipeline.stages import StagesConfig
    from cafenet.scoring.evaluation import evaluate
    from cafenet.scoring.scorer import ScoringConfig
    from cafenet.searching.algorithms.evolution import Evolution
    from cafenet.searching.algorithms.greedy import Greedy
    from cafenet.searching.algorithms.random_search import RandomSearch
    from cafenet.searching.algorithms.trend import Trend
    from cafenet.searching.latency.measure import LatencySettings, measure_latency
    from cafenet.searching.result import SearchResult
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
    from cafenet.supernet.sharing import Bilateral, LocallyFree
    from cafenet.supernet.supernet import Supernet
    from cafenet.supernet.train import TrainConfig, train_supernet
    from cafenet.tracing.tracer import trace
    from cafenet.training.distillation import DistillConfig
    from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig

    __version__: str

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
    "RunFileError",
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

_MODULE_OF = {
    "Bilateral": "supernet.sharing",
    "Bins": "space.bins",
    "DistillConfig": "training.distillation",
    "Evolution": "searching.algorithms.evolution",
    "Exact": "supernet.candidate_choice",
    "Found": "pipeline.search",
    "Frozen": "space.width_space",
    "Greedy": "searching.algorithms.greedy",
    "LatencySettings": "searching.latency.measure",
    "LocallyFree": "supernet.sharing",
    "OptimizerConfig": "training.optimizers",
    "PairedDifference": "common.statistics",
    "Race": "supernet.candidate_choice",
    "RandomSearch": "searching.algorithms.random_search",
    "ScheduleConfig": "training.optimizers",
    "ScoringConfig": "scoring.scorer",
    "SearchConfig": "searching.width_search",
    "SearchResult": "searching.result",
    "Slot": "space.width_space",
    "StagesConfig": "pipeline.stages",
    "Supernet": "supernet.supernet",
    "SupernetConfig": "supernet.build",
    "TrainConfig": "supernet.train",
    "Trend": "searching.algorithms.trend",
    "Verification": "space.verification",
    "WidthGroup": "space.width_space",
    "WidthSpace": "space.width_space",
    "compare_paired": "common.statistics",
    "evaluate": "scoring.evaluation",
    "export_model": "space.export",
    "flops_sensitive_bins": "space.bins",
    "load": "space.slim_file",
    "load_model": "models",
    "measure_latency": "searching.latency.measure",
    "save": "space.slim_file",
    "search": "pipeline.search",
    "search_widths": "searching.width_search",
    "sort_by_importance": "space.importance",
    "trace": "tracing.tracer",
    "train_model": "supernet.plain_training",
    "train_supernet": "supernet.train",
    "uniform_bins": "space.bins",
    "verify": "space.verification",
}
"""Where the public names are that are imported when they are first used."""


if not TYPE_CHECKING:  # a checker would take every misspelled name for one that this function finds

    def __getattr__(name: str) -> object:
        """Import a public name at its first use (PEP 562), or a package, as in `cafenet.data.load_data`."""
        if name == "__version__":
            value = _version()
        elif name in _MODULE_OF:
            value = getattr(import_module(f"cafenet.{_MODULE_OF[name]}"), name)
        elif not name.startswith("_") and find_spec(f"cafenet.{name}"):
            value = import_module(f"cafenet.{name}")
        else:
            raise AttributeError(f"module 'cafenet' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """All names, also those that nobody has used yet."""
    return sorted({*globals(), *__all__, "__version__"})


def _version() -> str:
    """The version that is installed; to read it takes longer than all else here."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("cafenet")
    except PackageNotFoundError:  # running from a source tree that was never installed
        return "0+unknown"
