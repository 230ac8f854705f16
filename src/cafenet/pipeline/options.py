"""The options of a search as one tree, with the same keys as in a recipe."""

from dataclasses import dataclass, field
from typing import Annotated

from cafenet.common.options import PositiveInt, Range, Rising, Share, check_options
from cafenet.errors import BudgetError
from cafenet.pipeline.stage_plan import StagesConfig
from cafenet.scoring.scorer import ScoringConfig
from cafenet.searching.algorithms.base import Algorithm
from cafenet.searching.latency.measure import LatencyConfig
from cafenet.searching.search_config import SearchConfig
from cafenet.supernet.build import SupernetConfig
from cafenet.supernet.sampling import SamplingConfig


@dataclass(frozen=True)
class SearchOptions:
    """Options of `cafenet.search`, except for the two trainings and the budget.

    Raises:
        BudgetError: If an option is out of its range, or the algorithm is not an algorithm.

    Examples:
        >>> import cafenet
        >>> options = cafenet.SearchOptions(supernet=cafenet.SupernetConfig(r=1), algorithm=cafenet.Evolution())
        >>> options.supernet.r, options.algorithm.name
        (1, 'evolution')
        >>> options.min_usage, options.num_finalists
        (0.99, 5)
    """

    supernet: SupernetConfig | None = None
    """Options of the supernet: how widths share weights. None takes the defaults, with the channels sorted by
    importance if the model came trained."""
    sampling: SamplingConfig | None = None
    """Options of the sampling: which widths the supernet trains, and what they learn from. None takes the defaults,
    without a training of the full network (`full_share`) if the model came trained."""
    stages: StagesConfig | None = None
    """Stages of the search. None takes those of the earlier search in the same directory; if there is none, one or two
    stages, as was best in measurements."""
    algorithm: Algorithm | None = None
    """Algorithm that proposes widths: Trend, Evolution, RandomSearch, Greedy, or one of your own. None is Trend with as
    many widths as the effort of the search says."""
    scoring: ScoringConfig = field(default_factory=ScoringConfig)
    """Options of the scoring: how carefully widths are scored."""
    latency: LatencyConfig = field(default_factory=LatencyConfig)
    """Options of the latency measurement, for budgets in milliseconds."""
    band: Annotated[tuple[Share, Share], Rising()] = (0.95, 1.0)
    """Smallest and largest share of the budget that widths proposed by evolution and random search use. Trend chooses
    its own."""
    min_usage: Share = 0.99
    """Minimum share of the budget that the result uses, if any width can."""
    num_finalists: PositiveInt = 5
    """Number of best widths that are filled up and scored exactly at the end."""
    search_workers: Annotated[int, Range(1, 4096)] = 1
    """Number of processes on this machine that score widths. They divide its threads among them."""

    def __post_init__(self) -> None:
        check_options(self, BudgetError)
        is_one = self.algorithm is None or all(hasattr(self.algorithm, name) for name in ("name", "proposals"))
        if isinstance(self.algorithm, type) or not is_one:
            raise BudgetError(
                f"SearchOptions: algorithm must be one such as cafenet.Trend(samples=300), but is {self.algorithm!r}"
            )

    def search_config(self, seed: int) -> SearchConfig:
        """Return the options of the search on one supernet.

        Args:
            seed: Seed of the search.

        Returns:
            The options, with the seed.
        """
        return SearchConfig(self.band, self.min_usage, self.num_finalists, seed, self.search_workers)
