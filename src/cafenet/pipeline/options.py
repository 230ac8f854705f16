"""The options of a search, one tree: the same keys as in a recipe."""

from dataclasses import dataclass, field
from typing import Annotated

from cafenet.common.options import PositiveInt, Range, Rising, Share, check_options
from cafenet.errors import BudgetError
from cafenet.pipeline.stages import StagesConfig
from cafenet.scoring.scorer import ScoringConfig
from cafenet.searching.algorithms.base import Algorithm
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.latency.measure import LatencyConfig
from cafenet.searching.width_search import SearchConfig
from cafenet.supernet.build import SupernetConfig
from cafenet.supernet.sampling import SamplingConfig


@dataclass(frozen=True)
class SearchOptions:
    """How `cafenet.search` goes about its job: everything but the two trainings and the budget.

    Smallest example: `SearchOptions(supernet=SupernetConfig(r=1), algorithm=Evolution())`.
    """

    supernet: SupernetConfig = field(default_factory=SupernetConfig)
    """How weights are shared between widths."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """Which widths the supernet trains, and what they learn from."""
    stages: StagesConfig | None = None
    """The number of stages; None takes the number that was best where it was measured, one or two, or that of the
    earlier search in the same directory."""
    algorithm: Algorithm = field(default_factory=Trend)
    """How widths are proposed: Trend, Evolution, RandomSearch, Greedy, or one of your own."""
    scoring: ScoringConfig = field(default_factory=ScoringConfig)
    """How carefully widths are scored."""
    latency: LatencyConfig = field(default_factory=LatencyConfig)
    """How latencies are measured, for budgets in milliseconds."""
    band: Annotated[tuple[Share, Share], Rising()] = (0.95, 1.0)
    """Share of the budget that widths proposed by evolution and random search use; trend chooses its own."""
    min_usage: Share = 0.99
    """Share of the budget that the result uses at least, if any width can."""
    num_finalists: PositiveInt = 5
    """Number of best widths that are filled up and scored exactly at the end."""
    search_workers: Annotated[int, Range(1, 4096)] = 1
    """Number of processes on this machine that score widths; they divide its threads."""

    def __post_init__(self) -> None:
        check_options(self, BudgetError)
        if isinstance(self.algorithm, type) or not all(hasattr(self.algorithm, name) for name in ("name", "proposals")):
            raise BudgetError(
                f"SearchOptions: algorithm must be one such as cafenet.Trend(samples=300), but is {self.algorithm!r}"
            )

    def search_config(self, seed: int) -> SearchConfig:
        """The options of the search on one supernet, with its seed."""
        return SearchConfig(self.band, self.min_usage, self.num_finalists, seed, self.search_workers)
