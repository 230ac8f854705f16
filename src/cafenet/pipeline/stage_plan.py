"""The stages of a search: their number, their budgets, their bins and their shares of the training.

Stage t of T has the budget F0 - (F0 - Fb) t/T and bins of beta / alpha^(t-1). Smallest example: half of 300M FLOPs in
3 stages with beta 1 and alpha 2 is 250M with beta 1, 200M with beta 0.5, 150M with beta 0.25.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from cafenet.common.options import Positive, Range, check_options
from cafenet.errors import BudgetError
from cafenet.pipeline.job import Job
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.budget import Budget, Cap
from cafenet.supernet.train import part_of

_ABOUT_HALF = 0.48
"""Budgets at or above this fraction count as "half" (150M of 300.8M is 49.9%)."""


@dataclass(frozen=True)
class StagesConfig:
    """Options of the stages: their number, and what changes between them.

    Raises:
        BudgetError: If an option is out of its range.

    Examples:
        >>> import cafenet
        >>> cafenet.StagesConfig(num_stages=2, alpha=1.0, carry_weights=True)
        StagesConfig(num_stages=2, alpha=1.0, carry_weights=True)
        >>> cafenet.SearchOptions(stages=cafenet.StagesConfig(num_stages=3)).stages.num_stages
        3
    """

    num_stages: Annotated[int, Range(1, 100)] = 1
    """Number of stages; the paper uses 3 on CIFAR-10 and 1 elsewhere."""
    alpha: Positive = 2.0
    """Factor by which bins become finer from each stage to the next."""
    carry_weights: bool = False
    """True starts each stage from the weights of the previous one instead of the model's own. All stages then share the
    epochs of one training; otherwise each stage has all of them."""

    def __post_init__(self) -> None:
        check_options(self, BudgetError)


def stages_for(budget: Budget, full_costs: Mapping[str, float], start: str) -> StagesConfig:
    """Return the stages that were best in measurements (docs/peers.md).

    These are two stages that share one training. It is a single stage if the slim model is trained from scratch and no
    cost is cut to less than about half.

    Args:
        budget: The budget of the search.
        full_costs: Costs of the full model by name, for every cost that the budget caps.
        start: Weights that the slim model's training starts from, "supernet" or "scratch".

    Returns:
        The options of the stages.
    """
    share = min(cap.limit / full_costs[cap.cost] for cap in budget.caps)
    is_one = start == "scratch" and share >= _ABOUT_HALF
    return StagesConfig() if is_one else StagesConfig(num_stages=2, alpha=1.0, carry_weights=True)


@dataclass(frozen=True)
class Stage:
    """One stage of a search: its number, its budget and the fineness of its bins."""

    number: int
    """Number of the stage, counted from 1."""
    budget: Budget
    """Budget of the stage. Only the last stage has the budget of the search itself."""
    beta: float
    """Number of channels in a bin of the most expensive group, as in `SupernetConfig.beta`."""


def plan_stages(budget: Budget, full_costs: Mapping[str, float], beta: float, config: StagesConfig) -> list[Stage]:
    """Plan the stages to a budget. Each stage lowers every cap by the same amount.

    Args:
        budget: The budget of the search, which is that of the last stage.
        full_costs: Costs of the full model by name, for every cost that the budget caps.
        beta: The `beta` of the bins in the first stage; it is divided by `alpha` in each later one.
        config: Options of the stages.

    Returns:
        The stages in their order.
    """
    stages = []
    for number in range(1, config.num_stages + 1):
        share = number / config.num_stages
        is_last = number == config.num_stages
        caps = tuple(
            cap if is_last else Cap(cap.cost, full_costs[cap.cost] - (full_costs[cap.cost] - cap.limit) * share)
            for cap in budget.caps
        )
        text = budget.text if is_last else f"{budget.text} (stage {number} of {config.num_stages})"
        stages.append(Stage(number, Budget(text, caps, is_on_the_way=not is_last), beta / config.alpha ** (number - 1)))
    return stages


def plan_jobs(job: Job, config: StagesConfig) -> list[Job]:
    """Return the job of each stage: all the same, or parts of one training if weights are carried.

    A search by trend is divided among the stages. If weights are carried, only the first stage trains the full network
    first; a later stage starts from trained weights and sorts their channels by importance. Smallest example: 30 epochs
    in 2 stages, with a share of 0.3 for the full network, give the first stage 9 + 10.5 epochs and the second 10.5.

    Args:
        job: The data and options of the whole search.
        config: Options of the stages.

    Returns:
        One job for each stage.
    """
    if isinstance(job.algorithm, Trend):
        job = replace(job, algorithm=job.algorithm.of_stages(config.num_stages))
    if config.num_stages == 1 or not config.carry_weights:
        return [job] * config.num_stages
    full_share = job.sampling.full_share
    share = (1 - full_share) / config.num_stages
    first = replace(
        job,
        training=part_of(job.training, full_share + share),
        sampling=replace(job.sampling, full_share=full_share / (full_share + share)),
    )
    later = replace(
        job,
        training=part_of(job.training, share),
        sampling=replace(job.sampling, full_share=0.0),
        supernet=replace(job.supernet, sort_by_importance=True),
    )
    return [first, *[later] * (config.num_stages - 1)]
