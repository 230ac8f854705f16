"""Multi-stage search (paper, `multistage` and eq4): each stage starts from the widths that the one before found.

Stage t of T has the budget F0 - (F0 - Fb) t/T and bins of beta / alpha^(t-1). Smallest example: half of 300M FLOPs in
3 stages with beta 1 and alpha 2 is 250M with beta 1, 200M with beta 0.5, 150M with beta 0.25.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from torch import nn
from torch.utils.data import DataLoader, Dataset

from cafenet.common.files import write_json
from cafenet.common.job_progress import next_part
from cafenet.common.options import Positive, Range, check_options
from cafenet.common.read_files import read_if_there
from cafenet.common.run_files import LATENCIES, STAGES, START
from cafenet.common.run_places import JOURNAL, LATENCY, result_name, stage_place
from cafenet.errors import BudgetError, TraceError
from cafenet.modules.batches import LossFunction
from cafenet.modules.copying import RECORD
from cafenet.modules.tensors import named_tensors
from cafenet.scoring.examples import Data, hold_examples
from cafenet.scoring.metrics import Metric, metric_name
from cafenet.scoring.scorer import Scorer, ScoringConfig
from cafenet.searching.algorithms.base import Algorithm
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.budget import Budget, Cap
from cafenet.searching.feasible import Feasible
from cafenet.searching.latency.measure import KnownLatency, LatencyConfig
from cafenet.searching.result import FoundWidths, is_result_of, read_result, write_result
from cafenet.searching.width_search import SearchConfig, WidthSearch, supernet_identity
from cafenet.space.extraction import rebuild
from cafenet.space.importance import channels_before, in_order
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.build import SupernetConfig, build_bins, build_supernet
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.train import TrainConfig, part_of, train_supernet
from cafenet.tracing.tracer import trace

_MOST_SHARES = (0.2, 0.9)
_FINGERPRINT = 256
"""Number of examples by which validation data are recognised."""
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


@dataclass(frozen=True, eq=False)
class Job:
    """The data and options that all stages of a search have in common."""

    train: Dataset[Any] | DataLoader[Any]
    """Training data: a data set or a loader of pairs (inputs, target)."""
    validation: Data
    """Validation data that widths are scored on."""
    loss: str | LossFunction = "cross_entropy"
    """The loss, by name or as a function of (output, target)."""
    metric: str | Metric = "accuracy"
    """The measure of quality, by name or as a function of (output, target); higher is better."""
    supernet: SupernetConfig = field(default_factory=SupernetConfig)
    """Options of the supernet."""
    training: TrainConfig = field(default_factory=TrainConfig)
    """Options of the supernet's training."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """Options of the sampling of widths during the training."""
    algorithm: Algorithm = field(default_factory=Trend)
    """Algorithm that proposes widths."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """Options of the search on one supernet."""
    scoring: ScoringConfig = field(default_factory=ScoringConfig)
    """Options of the scoring."""
    latency: LatencyConfig = field(default_factory=LatencyConfig)
    """Options of the latency measurement."""
    full: KnownLatency | None = None
    """The model that latency budgets are a share of, with its latency; None if there are no such budgets."""
    freeze: tuple[str, ...] = ()
    """Names of layers that keep their widths, with wildcards: `*.se`."""
    outputs: str | int | Sequence[str | int] | None = None
    """The parts of the model's output that matter, as in `cafenet.trace`; None stands for all."""
    quiet: bool = False
    """True shows no progress."""


@dataclass(frozen=True, eq=False)
class StagesResult:
    """The result of the last stage, in terms of the original model."""

    result: FoundWidths
    """The widths found; channels are numbered as in the original model."""
    slim: nn.Module
    """The slim model with the last supernet's weights; its channels have the order of the original model."""
    place: Path
    """Directory of the last stage."""


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


def search_in_stages(
    original: WidthSpace,
    example_inputs: Any,
    budget: Budget,
    job: Job,
    config: StagesConfig,
    directory: Path,
    full_costs: Mapping[str, float],
) -> StagesResult:
    """Train and search stage after stage. Each stage keeps its supernet, study and result in its own directory.

    A second call continues where the first one stopped.

    Args:
        original: The width space of the original model, traced with `job.freeze` and `job.outputs`. The model is not
            changed.
        example_inputs: Inputs that the model was traced with; those of later stages are traced with them, too.
        budget: The budget of the search.
        job: The data and options of the search.
        config: Options of the stages.
        directory: Directory of the search for this budget; the directories of the stages are in it.
        full_costs: Costs of the full model by name, for every cost that the budget caps.

    Returns:
        The result of the last stage, with the channels of the original model.

    Raises:
        CafeNetError: If no width meets the budget, or the files of an earlier search in the
            directory belong to other options.
    """
    model = original.model
    if not (directory / STAGES.name).exists():  # else once the checkpoints have not refused other stages
        write_json(directory / STAGES.name, asdict(config))
    budget, full_costs = _as_measured_first(budget, full_costs, original, job.latency, directory)
    if "latency_ms" in full_costs:
        job = replace(job, full=KnownLatency(model, full_costs["latency_ms"]))
    current, weights, whole = model, model, model
    kept: dict[str, list[int]] = {}
    result: FoundWidths | None = None
    plan = plan_stages(budget, full_costs, job.supernet.beta, config)
    for stage, own in zip(plan, plan_jobs(job, config), strict=True):
        space = original
        if stage.number > 1:
            narrowed = _narrowed_space(current, example_inputs, job, original, stage)
            if narrowed is None:  # so narrow that it can not be cut to the budget: again from the whole model
                weights, kept = whole if config.carry_weights else model, {}
            else:
                space = narrowed
        place = stage_place(directory, stage.number)
        if stage.number > 1:
            place = place_for(directory, place.name, kept)
        supernet, result = run_stage(weights, space, stage, _of_original(own, original, space), place)
        channels = channels_before(space, result.channels, supernet.order)
        kept = composed(kept, channels)
        current = space.extract(channels=channels)
        learned = in_order(space, supernet.model, np.argsort(supernet.order))
        whole = learned if space is original else whole
        slim = space.extract(channels=channels, model=learned)
        weights = slim if config.carry_weights else current
    assert result is not None
    write_json(directory / STAGES.name, asdict(config))
    widths = {name: len(channels) for name, channels in kept.items()}
    # Cut from the original model in one go, so that a file of it says so.
    slim = rebuild(model, named_tensors(slim), getattr(original.extract(channels=kept), RECORD))
    return StagesResult(replace(result, channels=kept, widths=widths), slim, place)


def latencies_before(
    directory: Path, budget: str, space: WidthSpace, settings: LatencyConfig
) -> dict[str, float] | None:
    """Return the latencies that an earlier search of this model for this budget measured first.

    Args:
        directory: Directory of the search.
        budget: The budget as the user wrote it.
        space: The width space of the model.
        settings: Options of the latency measurement.

    Returns:
        The cap on latency (`limit_ms`) and the latency of the full model (`full_ms`), or None if the directory holds
        none for the same budget, model and options.
    """
    before = read_if_there(LATENCIES, directory) or {}
    measured: dict[str, float] | None = before.get("measured")
    return measured if before.get("asked") == _asked_latencies(budget, space, settings) else None


def _asked_latencies(budget: str, space: WidthSpace, settings: LatencyConfig) -> dict[str, Any]:
    """Return the request that measured latencies belong to. Another request measures again."""
    model = {"flops": int(space.flops()), "params": int(space.params()), "widths": dict(space.full_widths)}
    asked: dict[str, Any] = json.loads(json.dumps({"budget": budget, "settings": settings.made_with(), "model": model}))
    return asked


def _as_measured_first(
    budget: Budget, full_costs: Mapping[str, float], space: WidthSpace, settings: LatencyConfig, directory: Path
) -> tuple[Budget, Mapping[str, float]]:
    """Replace the latencies by those that the directory holds, because other ones would lead to other widths."""
    limit_ms = next((cap.limit for cap in budget.caps if cap.cost == "latency_ms"), None)
    if limit_ms is None:
        return budget, full_costs
    measured = latencies_before(directory, budget.text, space, settings)
    if measured is None:
        measured = {"limit_ms": limit_ms, "full_ms": full_costs["latency_ms"]}
        asked = _asked_latencies(budget.text, space, settings)
        write_json(directory / LATENCIES.name, {"asked": asked, "measured": measured})
    caps = tuple(Cap(cap.cost, measured["limit_ms"] if cap.cost == "latency_ms" else cap.limit) for cap in budget.caps)
    return replace(budget, caps=caps), {**full_costs, "latency_ms": measured["full_ms"]}


def _narrowed_space(
    model: nn.Module, example_inputs: Any, job: Job, original: WidthSpace, stage: Stage
) -> WidthSpace | None:
    """Return the space of a model that a stage found, or None if no width of it meets the next stage's budget.

    Only widths that the original could have may vary. A grouped convolution that is left with one channel per group
    looks like a depthwise one, whose channels are not tied; such groups are frozen. A minimum width that is a share
    refers to the channels of the original.
    """
    ties, full, share = {group.name: group.divisor for group in original.groups}, original.full_widths, 0.0
    if isinstance(job.supernet.min_width, float):
        share = job.supernet.min_width
    try:
        space = trace(model, example_inputs, freeze=job.freeze, outputs=job.outputs)
        loose = tuple(group.name for group in space.groups if ties.get(group.name) != group.divisor)
        if loose:
            space = trace(model, example_inputs, freeze=(*job.freeze, *loose), outputs=job.outputs)
        least = [min(group.channels, math.ceil(share * full[group.name])) for group in space.groups]
        groups = zip(space.groups, least, strict=True)
        space = replace(space, groups=tuple(replace(each, min_width=max(each.min_width, n)) for each, n in groups))
        check_feasible(space, _of_original(job, original, space), stage)
    except (BudgetError, TraceError):  # TraceError: nothing is left that varies
        return None
    return space


def check_feasible(space: WidthSpace, job: Job, stage: Stage) -> None:
    """Check that some width meets a stage's budget. Caps on latency are left out, since they need measurements.

    Args:
        space: The width space of the stage.
        job: The data and options of the stage.
        stage: The stage with its budget.

    Raises:
        BudgetError: If the smallest subnet exceeds a cap.
    """
    caps = tuple(cap for cap in stage.budget.caps if cap.cost != "latency_ms")
    bins = build_bins(space, job.supernet, stage.beta)
    costs = {"flops": space.flops, "params": space.params}
    Feasible(bins, costs, Budget(stage.budget.text, caps), job.search.band)


def _of_original(job: Job, original: WidthSpace, space: WidthSpace) -> Job:
    """Convert shares of the original model's FLOPs to shares of a stage's. Minimum widths are part of its space."""
    if space is original:
        return job
    sampling, supernet, ratio = job.sampling, job.supernet, original.flops() / space.flops()
    if sampling.flops_band is not None and sampling.flops_band != "budgets":
        low, high = (min(1.0, share * ratio) for share in sampling.flops_band)
        sampling = replace(sampling, flops_band=(low, high))
    if isinstance(supernet.min_width, float):
        supernet = replace(supernet, min_width=1)
    return replace(job, sampling=sampling, supernet=supernet)


def place_for(directory: Path, name: str, begins_with: Mapping[str, Any]) -> Path:
    """Choose the directory of a training that starts from an earlier result, and record that start in it.

    A training that starts from something else than the one in the directory gets a new directory.

    Args:
        directory: Directory of the search.
        name: Name of the training's directory, for example `stage-2`.
        begins_with: The earlier result that the training starts from, as JSON values.

    Returns:
        The directory.
    """
    place, content = directory / name, json.dumps(begins_with, sort_keys=True)
    before = read_if_there(START, place)
    if before is not None and before != json.loads(content):
        place = directory / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"
    write_json(place / START.name, dict(begins_with))
    return place


def run_stage(
    weights: nn.Module, space: WidthSpace, stage: Stage, job: Job, directory: Path
) -> tuple[Supernet, FoundWidths]:
    """Run one stage: train its supernet and search it for the budget of the stage.

    Args:
        weights: Model with the weights that the supernet starts from.
        space: The width space of the stage.
        stage: The stage with its budget and bins.
        job: The data and options of the stage.
        directory: Directory of the stage.

    Returns:
        The trained supernet and the widths found.
    """
    supernet, (result,) = run_supernet(weights, space, [stage.budget], job, directory, beta=stage.beta)
    return supernet, result


def run_supernet(
    weights: nn.Module,
    space: WidthSpace,
    budgets: Sequence[Budget],
    job: Job,
    directory: Path,
    *,
    beta: float | None = None,
) -> tuple[Supernet, list[FoundWidths]]:
    """Train one supernet and search it for every budget, or read the results of an earlier call.

    If the options of the search have changed, the search starts again. It reuses scores that the study already holds
    and refuses a study of another supernet or of other data. Of the data of finished results, only a sample is read.

    Args:
        weights: Model with the weights that the supernet starts from.
        space: The width space of the supernet.
        budgets: The budgets to search for.
        job: The data and options of the search.
        directory: Directory of the supernet, its study and the results.
        beta: Replaces the `beta` of the supernet's options in later stages of a search.

    Returns:
        The trained supernet, and the widths found in the order of the budgets.
    """
    with next_part():
        supernet = train_stage(weights, space, budgets, job, directory, beta=beta)
    return supernet, search_trained(supernet, budgets, job, directory)


def search_trained(supernet: Supernet, budgets: Sequence[Budget], job: Job, directory: Path) -> list[FoundWidths]:
    """Search a trained supernet for every budget, or read the results of an earlier call.

    Args:
        supernet: The trained supernet.
        budgets: The budgets to search for.
        job: The data and options of the search.
        directory: Directory of the study and the results.

    Returns:
        The widths found in the order of the budgets.
    """
    files = {budget.text: directory / result_name(job.algorithm.name, budget.text) for budget in budgets}
    asked = _asked(job, supernet)
    missing = [budget for budget in budgets if not is_result_of(files[budget.text], asked)]
    with next_part():
        found = _searched(supernet, missing, job, directory) if missing else []
    for budget, result in zip(missing, found, strict=True):
        write_result(result, files[budget.text], asked)
    return [read_result(files[budget.text]) for budget in budgets]


def _searched(supernet: Supernet, budgets: Sequence[Budget], job: Job, directory: Path) -> list[FoundWidths]:
    """Search a trained supernet for budgets."""
    scorer = Scorer(supernet, job.train, job.validation, metric=job.metric, loss=job.loss, config=job.scoring)
    file = directory / LATENCY
    search = WidthSearch(scorer, job.algorithm, job.search, job.latency, latency_file=file, full=job.full)
    return search.run(budgets, directory / JOURNAL, quiet=job.quiet)


def _asked(job: Job, supernet: Supernet) -> dict[str, Any]:
    """Return the options, the supernet and the data that a result depends on, as plain JSON values."""
    search = {name: value for name, value in asdict(job.search).items() if name != "search_workers"}
    content = {
        "algorithm": repr(job.algorithm),
        "search": search,
        "scoring": asdict(job.scoring),
        "latency": job.latency.made_with(),
        "metric": metric_name(job.metric),
        "supernet": supernet_identity(supernet),
        "validation": hold_examples(job.validation, "validation data", num_examples=_FINGERPRINT).digest(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(content, default=repr))
    return plain


def train_stage(
    weights: nn.Module,
    space: WidthSpace,
    budgets: Sequence[Budget],
    job: Job,
    directory: Path,
    *,
    beta: float | None = None,
) -> Supernet:
    """Return the trained supernet of a stage. The training continues from its checkpoint, if there is one.

    Args:
        weights: Model with the weights that the supernet starts from.
        space: The width space of the supernet.
        budgets: The budgets that it will be searched for. They determine the band of FLOPs if it is "budgets".
        job: The data and options of the search.
        directory: Directory of the checkpoint.
        beta: Replaces the `beta` of the supernet's options in later stages of a search.

    Returns:
        The trained supernet.
    """
    supernet = build_supernet(weights, space, job.supernet, beta=beta, seed=job.training.seed)
    sampling = job.sampling
    if sampling.flops_band == "budgets":
        sampling = replace(sampling, flops_band=band_about(budgets, space))
    train_supernet(
        supernet,
        job.train,
        job.training,
        sampling=sampling,
        loss=job.loss,
        directory=directory,
        quiet=job.quiet,
        title=f"supernet of {directory.name}",
    )
    return supernet


def band_about(budgets: Sequence[Budget], space: WidthSpace) -> tuple[float, float]:
    """Return the shares of FLOPs from 0.7 of the smallest budget to 1.3 of the largest: half gives (0.35, 0.65).

    A share of the parameters counts as the same share of FLOPs. Caps on latency are left out, because the band must be
    the same when the training is continued.

    Args:
        budgets: The budgets that the supernet will be searched for.
        space: The width space of the supernet.

    Returns:
        The smallest and the largest share; (0.2, 0.9) if some budget caps only the latency.
    """
    full = {"flops": float(space.flops()), "params": float(space.params())}
    shares = [
        min(1.0, *(cap.limit / full[cap.cost] for cap in budget.caps if cap.cost in full))
        for budget in budgets
        if any(cap.cost in full for cap in budget.caps)
    ]
    return (0.7 * min(shares), min(1.3 * max(shares), 1.0)) if len(shares) == len(budgets) else _MOST_SHARES


def composed(before: Mapping[str, list[int]], after: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Number the channels of a model that was cut twice as in the first model: channels (0, 2) of (0, 2, 5) are (0, 5).

    Args:
        before: Channels that the first cut kept, by group name. A missing group was kept whole.
        after: Channels that the second cut kept, by group name, numbered as after the first cut.

    Returns:
        The kept channels of each group, numbered as in the first model.
    """
    kept = dict(before)
    for name, channels in after.items():
        kept[name] = [before[name][channel] for channel in channels] if name in before else list(channels)
    return kept
