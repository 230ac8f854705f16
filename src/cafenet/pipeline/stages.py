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
from cafenet.common.options import Positive, Range, check_options
from cafenet.common.run_files import JOURNAL, LATENCIES, LATENCY, START, read_if_there, result_name
from cafenet.errors import BudgetError, TraceError
from cafenet.modules.batches import LossFunction
from cafenet.modules.calling import RECORD, named_tensors
from cafenet.scoring.examples import Data
from cafenet.scoring.metrics import Metric, metric_name
from cafenet.scoring.scorer import Scorer, ScoringConfig
from cafenet.searching.algorithms.base import Algorithm
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.budget import Budget, Cap
from cafenet.searching.feasible import Feasible
from cafenet.searching.latency.measure import LatencyConfig
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
_ABOUT_HALF = 0.48
"""Of a cost: 150M are meant as half of 300.8M, too."""


@dataclass(frozen=True)
class StagesConfig:
    """How many stages, and what changes between them."""

    num_stages: Annotated[int, Range(1, 100)] = 1
    """The paper takes 3 on CIFAR-10 and 1 elsewhere."""
    alpha: Positive = 2.0
    """Bins get that much finer each stage."""
    carry_weights: bool = False
    """Start each stage from the weights of the one before, instead of the model's own. All stages then share the epochs
    of one training; otherwise each has them all."""

    def __post_init__(self) -> None:
        check_options(self, BudgetError)


def stages_for(budget: Budget, full_costs: Mapping[str, float], start: str) -> StagesConfig:
    """The number of stages that was best where it was measured (docs/peers.md).

    Two that share one training, but one where the slim model is trained from scratch and no cost is cut to less than
    about half.
    """
    share = min(cap.limit / full_costs[cap.cost] for cap in budget.caps)
    is_one = start == "scratch" and share >= _ABOUT_HALF
    return StagesConfig() if is_one else StagesConfig(num_stages=2, alpha=1.0, carry_weights=True)


@dataclass(frozen=True)
class Stage:
    """One stage's place, budget and bins."""

    number: int
    budget: Budget
    beta: float


@dataclass(frozen=True, eq=False)
class Job:
    """What every stage does alike: data and options."""

    train: Dataset[Any] | DataLoader[Any]
    validation: Data
    loss: str | LossFunction = "cross_entropy"
    metric: str | Metric = "accuracy"
    supernet: SupernetConfig = field(default_factory=SupernetConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    algorithm: Algorithm = field(default_factory=Trend)
    search: SearchConfig = field(default_factory=SearchConfig)
    scoring: ScoringConfig = field(default_factory=ScoringConfig)
    latency: LatencyConfig = field(default_factory=LatencyConfig)
    freeze: tuple[str, ...] = ()
    outputs: str | int | Sequence[str | int] | None = None
    quiet: bool = False


@dataclass(frozen=True, eq=False)
class StagesResult:
    """What the last stage found, in terms of the original model."""

    result: FoundWidths
    slim: nn.Module
    """The widths found, with the last supernet's weights, channels in the original model's order."""
    place: Path
    """Of the last stage."""


def plan_stages(budget: Budget, full_costs: Mapping[str, float], beta: float, config: StagesConfig) -> list[Stage]:
    """The stages to a budget; every cap of it is approached in equal parts."""
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
    """What each stage does: the same, or with carried weights its part of one training.

    A search by trend does its part in each. The full network is trained first in the first stage alone; a later one
    begins with trained weights, whose channels it sorts. Smallest example: of 30 epochs in 2 stages, 0.3 for the full
    network, the first has 9 + 10.5 and the second 10.5.
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
    model: nn.Module,
    example_inputs: Any,
    budget: Budget,
    job: Job,
    config: StagesConfig,
    directory: Path,
    full_costs: Mapping[str, float],
) -> StagesResult:
    """Train and search stage after stage; each keeps its supernet, study and result in a directory of its own.

    A second call continues where the first one stopped. The channels of the result are the original model's.
    """
    original = trace(model, example_inputs, freeze=job.freeze, outputs=job.outputs)
    budget, full_costs = _as_measured_first(budget, full_costs, original, job.latency, directory)
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
        place = first_place(directory) if stage.number == 1 else place_for(directory, f"stage-{stage.number}", kept)
        supernet, result = run_stage(weights, space, stage, _of_original(own, original, space), place)
        channels = channels_before(space, result.channels, supernet.order)
        kept = composed(kept, channels)
        current = space.extract(channels=channels)
        learned = in_order(space, supernet.model, np.argsort(supernet.order))
        whole = learned if space is original else whole
        slim = space.extract(channels=channels, model=learned)
        weights = slim if config.carry_weights else current
    assert result is not None
    widths = {name: len(channels) for name, channels in kept.items()}
    # Cut from the original model in one go, so that a file of it says so.
    slim = rebuild(model, named_tensors(slim), getattr(original.extract(channels=kept), RECORD))
    return StagesResult(replace(result, channels=kept, widths=widths), slim, place)


def latencies_before(
    directory: Path, budget: str, space: WidthSpace, settings: LatencyConfig
) -> dict[str, float] | None:
    """The cap on latency (`limit_ms`) and the full model's (`full_ms`) that a search of this model for this budget
    began with."""
    before = read_if_there(LATENCIES, directory) or {}
    measured: dict[str, float] | None = before.get("measured")
    return measured if before.get("asked") == _asked_latencies(budget, space, settings) else None


def _asked_latencies(budget: str, space: WidthSpace, settings: LatencyConfig) -> dict[str, Any]:
    """What measured latencies belong to: other ones are measured again."""
    model = {"flops": int(space.flops()), "params": int(space.params()), "widths": dict(space.full_widths)}
    asked: dict[str, Any] = json.loads(json.dumps({"budget": budget, "settings": asdict(settings), "model": model}))
    return asked


def _as_measured_first(
    budget: Budget, full_costs: Mapping[str, float], space: WidthSpace, settings: LatencyConfig, directory: Path
) -> tuple[Budget, Mapping[str, float]]:
    """The cap on latency and the full model's that a directory began with: other ones would lead to other widths."""
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
    """The space of a model that a stage found, None where no width of it meets the next stage's budget.

    Nothing may vary in it that could not vary so in the original. A grouped convolution that is left with one channel a
    group looks like a depthwise one, whose channels are not tied; such groups stay as they are. A smallest width that
    is a share is one of the original's channels.
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
    """Some width must meet a stage's budget; latency is not known without measuring."""
    caps = tuple(cap for cap in stage.budget.caps if cap.cost != "latency_ms")
    bins = build_bins(space, job.supernet, stage.beta)
    costs = {"flops": space.flops, "params": space.params}
    Feasible(bins, costs, Budget(stage.budget.text, caps), job.search.band)


def _of_original(job: Job, original: WidthSpace, space: WidthSpace) -> Job:
    """Shares of the original model as those of a stage's: the band of FLOPs; the smallest widths are in its space."""
    if space is original:
        return job
    sampling, supernet, ratio = job.sampling, job.supernet, original.flops() / space.flops()
    if sampling.flops_band is not None and sampling.flops_band != "budgets":
        low, high = (min(1.0, share * ratio) for share in sampling.flops_band)
        sampling = replace(sampling, flops_band=(low, high))
    if isinstance(supernet.min_width, float):
        supernet = replace(supernet, min_width=1)
    return replace(job, sampling=sampling, supernet=supernet)


def first_place(directory: Path) -> Path:
    """Where the first stage of a search is kept."""
    return directory / "stage-1"


def place_for(directory: Path, name: str, begins_with: Mapping[str, Any]) -> Path:
    """Where a training that begins with something found before is kept: one with another start gets a new place."""
    place, content = directory / name, json.dumps(begins_with, sort_keys=True)
    before = read_if_there(START, place)
    if before is not None and before != json.loads(content):
        place = directory / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"
    write_json(place / START.name, dict(begins_with))
    return place


def run_stage(
    weights: nn.Module, space: WidthSpace, stage: Stage, job: Job, directory: Path
) -> tuple[Supernet, FoundWidths]:
    """One stage: train the supernet, search it for one budget."""
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
    """Train one supernet and search it for every budget, or read what was found before.

    Other options of the search than before start it again; scores that the study holds already are taken from it, and
    those of another supernet or of other data refused. What is finished is read without its data.
    """
    supernet = train_stage(weights, space, budgets, job, directory, beta=beta)
    files = {budget.text: directory / result_name(job.algorithm.name, budget.text) for budget in budgets}
    asked = _asked(job, supernet)
    missing = [budget for budget in budgets if not is_result_of(files[budget.text], asked)]
    if missing:
        scorer = Scorer(supernet, job.train, job.validation, metric=job.metric, loss=job.loss, config=job.scoring)
        search = WidthSearch(scorer, job.algorithm, job.search, job.latency, latency_file=directory / LATENCY)
        found = search.run(missing, directory / JOURNAL, quiet=job.quiet)
        for budget, result in zip(missing, found, strict=True):
            write_result(result, files[budget.text], asked)
    return supernet, [read_result(files[budget.text]) for budget in budgets]


def _asked(job: Job, supernet: Supernet) -> dict[str, Any]:
    """What a result depends on, options and the supernet, as JSON gives it back."""
    search = {name: value for name, value in asdict(job.search).items() if name != "num_workers"}
    content = {
        "algorithm": repr(job.algorithm),
        "search": search,
        "scoring": asdict(job.scoring),
        "latency": asdict(job.latency),
        "metric": metric_name(job.metric),
        "supernet": supernet_identity(supernet),
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
    """The trained supernet of a stage, continued from its checkpoint or complete already."""
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
        title=directory.name,
    )
    return supernet


def band_about(budgets: Sequence[Budget], space: WidthSpace) -> tuple[float, float]:
    """The shares of FLOPs from 0.7 of the smallest budget to 1.3 of the largest: half is (0.35, 0.65).

    A share of the parameters is taken for one of FLOPs. Caps on latency say nothing here, since a band must be the same
    when the training is continued; budgets of nothing else get most shares.
    """
    full = {"flops": float(space.flops()), "params": float(space.params())}
    shares = [
        min(1.0, *(cap.limit / full[cap.cost] for cap in budget.caps if cap.cost in full))
        for budget in budgets
        if any(cap.cost in full for cap in budget.caps)
    ]
    return (0.7 * min(shares), min(1.3 * max(shares), 1.0)) if len(shares) == len(budgets) else _MOST_SHARES


def composed(before: Mapping[str, list[int]], after: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Channels of a model cut from a cut model, as those of the first: of (0, 2, 5), channels (0, 2) are (0, 5)."""
    kept = dict(before)
    for name, channels in after.items():
        kept[name] = [before[name][channel] for channel in channels] if name in before else list(channels)
    return kept
