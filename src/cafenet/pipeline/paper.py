"""The paper's algorithm as options: the values that it fixes, whatever the defaults are.

The keys are those of `SearchOptions` and of recipes. docs/method.md has them as a table, with the default beside each
and the reason of the difference.
"""

import dataclasses
from typing import Any, Literal, TypeVar

from cafenet.errors import CafeNetError
from cafenet.pipeline.options import SearchOptions
from cafenet.pipeline.stage_plan import StagesConfig
from cafenet.searching.algorithms.base import Algorithm
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.algorithms.random_search import RandomSearch
from cafenet.supernet.build import SupernetConfig
from cafenet.supernet.sampling import SamplingConfig

Tree = TypeVar("Tree")
"""A dataclass with sections, such as `SearchOptions`."""

SHARING: dict[str, Any] = {
    "supernet.sharing": "locally_free",
    "supernet.r": 1,
    "supernet.per_group": False,
    "supernet.bins": "flops_sensitive",
    "supernet.choice": "exact",
    "supernet.sort_by_importance": False,
    "sampling.sandwich": 0,
    "sampling.flops_band": None,
    "sampling.full_share": 0.0,
    "sampling.distill": None,
    "scoring.race": False,
}
"""Values for sharing, training and scoring. The options that the paper varies (beta, lambda, the number of stages) stay
free."""
EVOLUTION = {"population": 40, "iterations": 50, "screened": 1}
"""CafeNet-E: 2,000 widths in 50 generations, bred without a regression."""
RANDOM = {"samples": 2000}
"""CafeNet-R: 2,000 random widths."""


def paper_options(algorithm: Literal["evolution", "random"] = "evolution", num_stages: int = 1) -> SearchOptions:
    """Return the options of a search by exactly the paper's algorithm.

    `cafenet.search(options="paper")` takes these with their defaults, gives the supernet and the slim model fresh
    weights, and so leaves only budget, data and trainings to choose.

    Args:
        algorithm: "evolution" scores 50 generations of 40 widths (CafeNet-E), "random" 2,000 widths (CafeNet-R).
        num_stages: Number of stages; the paper uses 3 on CIFAR-10 and 1 elsewhere.

    Returns:
        The options.

    Raises:
        CafeNetError: If the algorithm is not one of the two, or the number of stages is out of its range.

    Examples:
        >>> from cafenet.pipeline.paper import paper_options
        >>> options = paper_options(num_stages=3)
        >>> options.supernet.r, options.supernet.choice, options.sampling.flops_band, options.stages.num_stages
        (1, 'exact', None, 3)
    """
    algorithms: dict[str, Algorithm] = {"evolution": Evolution(**EVOLUTION), "random": RandomSearch(**RANDOM)}
    if algorithm not in algorithms:
        raise CafeNetError(f"the paper's algorithm must be one of evolution and random, but is {algorithm!r}")
    base = SearchOptions(
        supernet=SupernetConfig(),
        sampling=SamplingConfig(),
        algorithm=algorithms[algorithm],
        stages=StagesConfig(num_stages),
    )
    return with_values(base, SHARING)


def with_values(tree: Tree, values: dict[str, Any]) -> Tree:
    """Set values in a tree of options.

    Args:
        tree: The options; they are not changed.
        values: Values by dotted key, such as {"supernet.r": 1}.

    Returns:
        The options with these values.
    """
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        if section:
            inner = dataclasses.replace(getattr(tree, section), **{name: value})
            name, value = section, inner
        tree = dataclasses.replace(tree, **{name: value})  # type: ignore[type-var]
    return tree


def value_at(tree: Any, key: str) -> Any:
    """Return the value at a dotted key of a tree of options.

    Args:
        tree: The options.
        key: The key, such as "supernet.r".

    Returns:
        The value.
    """
    for name in key.split("."):
        tree = getattr(tree, name)
    return tree
