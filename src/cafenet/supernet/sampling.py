"""The options that only a supernet's training has: which widths a step trains, and what they learn from."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cafenet.common.options import (
    Count,
    Positive,
    PositiveShare,
    Rising,
    Share,
    ShareBelowOne,
    check_options,
)
from cafenet.errors import TrainingError
from cafenet.training.distillation import DistillConfig


@dataclass(frozen=True)
class SamplingConfig:
    """Options of sampling: the widths that a supernet trains, what they begin with and what they learn from.

    Raises:
        TrainingError: If an option is out of its range.

    Examples:
        >>> import cafenet
        >>> cafenet.SamplingConfig(flops_band=(0.3, 0.7), full_share=0.0).sandwich
        0
        >>> cafenet.SearchOptions(sampling=cafenet.SamplingConfig(sandwich=2)).sampling.full_share
        0.3
    """

    random_share: Share = 0.0
    """The paper's lambda: share of the first steps that train a random candidate instead of the best."""
    sandwich: Count = 0
    """0 trains one width per step; n > 0 the widest, the smallest and n sampled ones (the sandwich rule)."""
    flops_band: Annotated[tuple[PositiveShare, PositiveShare], Rising()] | Literal["budgets"] | None = "budgets"
    """Sample widths near a share of the model's FLOPs drawn from this band, e.g. [0.3, 0.7]. `budgets` is a band about
    the budgets that will be searched; None, and `budgets` where none are known, is over all bins, as in the paper."""
    spread: Positive = 0.3
    """Distance between the groups' shares in a band (standard deviation of their logarithms)."""
    full_share: ShareBelowOne = 0.3
    """Share of the epochs that train the full network first; its most important channels then go in front, and the
    supernet goes on from there. The paper trains the supernet from the start, which is 0."""
    distill: DistillConfig | None = None
    """Let all widths learn the outputs of the model that was given, if it came trained. Else they learn those of the
    full network that the supernet begins with: the one trained first (`full_share`) or, in a later stage, the network
    that the stage before found."""

    def __post_init__(self) -> None:
        check_options(self, TrainingError)
