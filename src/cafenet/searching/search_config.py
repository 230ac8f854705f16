"""Options of a search that do not depend on the algorithm."""

from dataclasses import dataclass
from typing import Annotated

from cafenet.common.options import PositiveInt, Range, Rising, Seed, Share, check_options
from cafenet.errors import BudgetError


@dataclass(frozen=True)
class SearchConfig:
    """Options of a search that do not depend on the algorithm.

    Example:
        >>> from cafenet.searching.search_config import SearchConfig
        >>> SearchConfig(min_usage=0.98, seed=1).num_finalists
        5
    """

    band: Annotated[tuple[Share, Share], Rising()] = (0.95, 1.0)
    """Smallest and largest share of the budget that widths proposed by `Evolution` and `RandomSearch` use. `Trend`
    chooses its own widths."""
    min_usage: Share = 0.99
    """Smallest share of the budget that the result uses, if any width vector can."""
    num_finalists: PositiveInt = 5
    """Number of best widths that are filled up and scored exactly at the end. Vectors that `Trend` settles on are tried
    one after the other instead."""
    seed: Seed = 0
    """Seed of all random choices of the search."""
    search_workers: Annotated[int, Range(1, 4096)] = 1
    """Number of processes on this machine; they divide its threads."""

    def __post_init__(self) -> None:
        check_options(self, BudgetError)
