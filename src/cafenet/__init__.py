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
from cafenet.common.torchvision_compat import mend_torchvision
from cafenet.errors import CafeNetError

keep_kernels()  # before torch's first operation
keep_memory()
mend_torchvision()  # Python's finder of modules, until somebody imports torchvision

if TYPE_CHECKING:  # for checkers and editors; `_MODULE_OF` says the same to Python
    from cafenet.models import load_model
    from cafenet.modules.freed_attention import free_heads
    from cafenet.pipeline.options import SearchOptions
    from cafenet.pipeline.own_loop import Supernet
    from cafenet.pipeline.result import SearchResult
    from cafenet.pipeline.search import search
    from cafenet.pipeline.stage_plan import StagesConfig
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
    from cafenet.supernet.train import train_supernet
    from cafenet.tracing.tracer import trace
    from cafenet.training.config import TrainConfig
    from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig

    __version__: str

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
    "free_heads",
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

_MODULE_OF = {
    "Evolution": "searching.algorithms.evolution",
    "Greedy": "searching.algorithms.greedy",
    "LatencyConfig": "searching.latency.measure",
    "OptimizerConfig": "training.optimizers",
    "RandomSearch": "searching.algorithms.random_search",
    "SamplingConfig": "supernet.sampling",
    "ScheduleConfig": "training.optimizers",
    "ScoringConfig": "scoring.scorer",
    "SearchOptions": "pipeline.options",
    "SearchResult": "pipeline.result",
    "StagesConfig": "pipeline.stage_plan",
    "Supernet": "pipeline.own_loop",
    "SupernetConfig": "supernet.build",
    "TrainConfig": "training.config",
    "Trend": "searching.algorithms.trend",
    "WidthSpace": "space.width_space",
    "evaluate": "scoring.evaluation",
    "export": "space.export",
    "free_heads": "modules.freed_attention",
    "load": "space.slim_file",
    "load_model": "models",
    "save": "space.slim_file",
    "search": "pipeline.search",
    "search_widths": "searching.width_search",
    "trace": "tracing.tracer",
    "train_model": "supernet.plain_training",
    "train_supernet": "supernet.train",
    "verify": "space.verification",
}
"""The module of each public name that is imported at its first use."""


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
