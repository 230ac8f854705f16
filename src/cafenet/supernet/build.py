"""The options of a supernet, and the construction of a supernet from them."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

from cafenet.common.options import Count, Positive, PositiveInt, PositiveShare, check_options
from cafenet.errors import BinError
from cafenet.space.bins import Bins, cost_sensitive_bins, uniform_bins
from cafenet.space.importance import importance_order, in_order
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.candidate_choice import Choice, Exact, Race
from cafenet.supernet.sharing import Bilateral, LocallyFree, Sharing
from cafenet.supernet.supernet import Supernet

_COSTS: dict[str, tuple[Literal["flops", "params"], ...]] = {
    "params_sensitive": ("params",),
    "flops_params_sensitive": ("flops", "params"),
}
"""Costs that bins follow; those of all others follow FLOPs."""


@dataclass(frozen=True)
class SupernetConfig:
    """Options that decide how weights are shared between widths.

    Example:
        >>> import cafenet
        >>> cafenet.SupernetConfig(r=1, min_width=0.25).bins
        'budget'
    """

    sharing: Literal["locally_free", "bilateral"] = "locally_free"
    """Sharing of weights between widths: "locally_free" as in the paper, "bilateral" as in BCNet with its two sides."""
    r: Count = 0
    """Offset of the locally free zone. 0 is the fixed sharing, which takes less time and gave similar results in our
    measurements; the paper uses 1."""
    per_group: bool = False
    """If True, offsets are drawn for each group separately instead of once for all groups."""
    max_candidates: PositiveInt = 16
    """Number of candidates that are drawn with `per_group`."""
    bins: Literal["budget", "flops_sensitive", "params_sensitive", "flops_params_sensitive", "uniform"] = "budget"
    """Division of groups into bins: "flops_sensitive" makes bins of about equal FLOPs, "params_sensitive" of about
    equal parameters, "flops_params_sensitive" of both; "budget" is the one of these whose costs the budgets cap, where
    latency counts as FLOPs and file size as parameters; "uniform" makes an equal number per group."""
    beta: Positive = 1.0
    """Number of channels in a bin of the group whose channels cost most; larger means fewer, coarser bins."""
    num_bins: PositiveInt = 10
    """Number of bins per group if bins are uniform."""
    min_width: PositiveInt | PositiveShare = 1
    """Smallest width of every group, in channels (int) or as a share of the group (float)."""
    divisor: PositiveInt | Literal["auto"] = 1
    """Bin sizes are multiples of this number. "auto" finds the steps of the runtime (`LatencyConfig.runtime`) by
    measuring the most expensive layers at a few widths."""
    choice: Literal["race", "exact"] = "race"
    """Way to find the best candidate during training: "race" is fast, "exact" is that of the paper."""
    sort_by_importance: bool = False
    """If True, the most important channels of each group are put in front before training. Use it for pretrained
    weights."""

    def __post_init__(self) -> None:
        check_options(self, BinError)
        if self.per_group and self.sharing == "locally_free" and self.r == 0:
            raise BinError("per_group draws among a group's assignments, but with r = 0 there is one; raise r")


def build_bins(space: WidthSpace, config: SupernetConfig, beta: float | None = None) -> Bins:
    """Divide the groups of a space into bins.

    Args:
        space: The width space.
        config: Options of the supernet.
        beta: Replaces the `beta` of the config in later stages of a search.

    Returns:
        The bins.

    Raises:
        BinError: If the options do not fit the space, or the divisor was not measured yet.
    """
    options = {"min_width": config.min_width, "divisor": divisor_of(config)}
    if config.bins == "uniform":
        return uniform_bins(space, config.num_bins, **options)  # type: ignore[arg-type]
    costs = _COSTS.get(config.bins, ("flops",))
    return cost_sensitive_bins(space, config.beta if beta is None else beta, costs, **options)  # type: ignore[arg-type]


def divisor_of(config: SupernetConfig) -> int:
    """Return the number of which bin sizes are multiples.

    Args:
        config: Options of the supernet.

    Returns:
        The number.

    Raises:
        BinError: If the divisor is "auto" and was not measured yet.
    """
    if config.divisor == "auto":
        raise BinError('divisor="auto" must be measured before there are bins, as a search does; give a number here')
    return config.divisor


def for_capped_costs(config: SupernetConfig, costs: Collection[str]) -> SupernetConfig:
    """Return the options with bins that follow the costs that budgets cap, if nothing else is chosen.

    Groups with many parameters and few FLOPs have one bin where bins follow FLOPs, so that a budget on parameters could
    not narrow them.

    Args:
        config: Options of the supernet.
        costs: The capped costs: "flops", "params", "latency_ms" and "file_bytes", which follows params.

    Returns:
        The options, whose `bins` are not "budget".
    """
    if config.bins != "budget":
        return config
    of_params = {"params", "file_bytes"} & set(costs)
    if not of_params:
        return replace(config, bins="flops_sensitive")
    return replace(config, bins="params_sensitive" if set(costs) == of_params else "flops_params_sensitive")


def build_supernet(
    model: nn.Module, space: WidthSpace, config: SupernetConfig, *, beta: float | None = None, seed: int = 0
) -> Supernet:
    """Build the supernet of a model from a copy of its weights, sorted by importance if the config asks for it.

    Args:
        model: The model; it is not changed.
        space: The width space of the model.
        config: Options of the supernet.
        beta: Replaces the `beta` of the config in later stages of a search.
        seed: Seed of the supernet's random choices.

    Returns:
        The supernet.

    Raises:
        BinError: If the options do not fit the space.
    """
    sharing: Sharing = (
        Bilateral()
        if config.sharing == "bilateral"
        else LocallyFree(config.r, per_group=config.per_group, max_candidates=config.max_candidates)
    )
    choice: Choice = Exact() if config.choice == "exact" else Race()
    order = importance_order(space, model) if config.sort_by_importance else None
    source = model if order is None else in_order(space, model, order)
    return Supernet(source, space, build_bins(space, config, beta), sharing, choice=choice, seed=seed, order=order)
