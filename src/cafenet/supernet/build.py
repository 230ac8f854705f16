"""The options of a supernet, and how they become one."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from cafenet.common.options import Count, Positive, PositiveInt, PositiveShare, check_options
from cafenet.errors import BinError
from cafenet.space.bins import Bins, flops_sensitive_bins, uniform_bins
from cafenet.space.importance import importance_order, in_order
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.candidate_choice import Choice, Exact, Race
from cafenet.supernet.sharing import Bilateral, LocallyFree, Pattern
from cafenet.supernet.supernet import Supernet


@dataclass(frozen=True)
class SupernetConfig:
    """How weights are shared between widths."""

    pattern: Literal["locally_free", "bilateral"] = "locally_free"
    """Which channels stand for a width: the paper's way, or BCNet's two sides."""
    r: Count = 0
    """Offset of the locally free zone. 0 is the fixed pattern, which takes less time and ends alike in what was
    measured; the paper takes 1."""
    per_group: bool = False
    """Draw a pattern for each group instead of one for all."""
    max_candidates: PositiveInt = 16
    """How many are drawn with per_group."""
    bins: Literal["flops_sensitive", "uniform"] = "flops_sensitive"
    beta: Positive = 1.0
    """Channels in a bin of the group whose channels cost most; larger means fewer, coarser bins."""
    num_bins: PositiveInt = 10
    """Bins a group where they are uniform."""
    min_width: PositiveInt | PositiveShare = 1
    """Smallest width of every group: channels (int) or share of the group (float)."""
    divisor: PositiveInt = 1
    """Bin sizes are multiples of it."""
    choice: Literal["race", "exact"] = "race"
    """How the best candidate is found in training."""
    sort_by_importance: bool = False
    """For pretrained weights: put the most important channels of each group in front first."""

    def __post_init__(self) -> None:
        check_options(self, BinError)
        if self.per_group and self.pattern == "locally_free" and self.r == 0:
            raise BinError("per_group draws among a group's assignments, but with r = 0 there is one; raise r")


def build_bins(space: WidthSpace, config: SupernetConfig, beta: float | None = None) -> Bins:
    """The bins of a space; `beta` in place of the config's for later stages."""
    options = {"min_width": config.min_width, "divisor": config.divisor}
    if config.bins == "uniform":
        return uniform_bins(space, config.num_bins, **options)  # type: ignore[arg-type]
    return flops_sensitive_bins(space, config.beta if beta is None else beta, **options)  # type: ignore[arg-type]


def build_supernet(
    model: nn.Module, space: WidthSpace, config: SupernetConfig, *, beta: float | None = None, seed: int = 0
) -> Supernet:
    """The supernet of a model: its weights, copied and perhaps sorted."""
    pattern: Pattern = (
        Bilateral()
        if config.pattern == "bilateral"
        else LocallyFree(config.r, per_group=config.per_group, max_candidates=config.max_candidates)
    )
    choice: Choice = Exact() if config.choice == "exact" else Race()
    order = importance_order(space, model) if config.sort_by_importance else None
    source = model if order is None else in_order(space, model, order)
    return Supernet(source, space, build_bins(space, config, beta), pattern, choice=choice, seed=seed, order=order)
