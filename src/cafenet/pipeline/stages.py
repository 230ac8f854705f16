"""Multi-stage search (paper, `multistage` and eq4): each stage starts from the widths that the one before found."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from cafenet.common.read_files import read_if_there
from cafenet.common.run_files import STAGES, START
from cafenet.common.run_places import stage_place
from cafenet.common.write_files import write_file
from cafenet.errors import BudgetError, TraceError
from cafenet.modules.copying import RECORD
from cafenet.modules.tensors import named_tensors
from cafenet.pipeline.first_latencies import as_measured_first
from cafenet.pipeline.job import Job
from cafenet.pipeline.one_stage import check_feasible, run_stage
from cafenet.pipeline.stage_plan import Stage, StagesConfig, plan_jobs, plan_stages
from cafenet.searching.budget import Budget
from cafenet.searching.latency.measure import KnownLatency
from cafenet.searching.result import FoundWidths
from cafenet.space.extraction import rebuild
from cafenet.space.importance import channels_before, in_order
from cafenet.space.width_space import WidthSpace
from cafenet.tracing.tracer import trace


@dataclass(frozen=True, eq=False)
class StagesResult:
    """The result of the last stage, in terms of the original model."""

    result: FoundWidths
    """The widths found; channels are numbered as in the original model."""
    slim: nn.Module
    """The slim model with the last supernet's weights; its channels have the order of the original model."""
    place: Path
    """Directory of the last stage."""


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
        write_file(STAGES, directory, asdict(config))
    budget, full_costs = as_measured_first(budget, full_costs, original, job.latency, directory)
    if "latency_ms" in full_costs:
        job = replace(job, full=KnownLatency(model, full_costs["latency_ms"]))
    stages = _Stages(original, example_inputs, job, config, directory)
    found: _Found | None = None
    for stage, own in zip(
        plan_stages(budget, full_costs, job.supernet.beta, config), plan_jobs(job, config), strict=True
    ):
        start = _Start(original, model, {}, model) if found is None else stages.start_after(found, stage)
        found = stages.run(stage, own, start)
    assert found is not None
    write_file(STAGES, directory, asdict(config))
    widths = {name: len(channels) for name, channels in found.kept.items()}
    # Cut from the original model in one go, so that a file of it says so.
    slim = rebuild(model, named_tensors(found.trained), getattr(original.extract(channels=found.kept), RECORD))
    return StagesResult(replace(found.result, channels=found.kept, widths=widths), slim, found.place)


@dataclass(frozen=True, eq=False)
class _Start:
    """The model that a stage begins with."""

    space: WidthSpace
    """The width space of the stage."""
    weights: nn.Module
    """The weights that its supernet starts from."""
    kept: dict[str, list[int]]
    """The channels of the original model that the space holds; a missing group is whole."""
    whole: nn.Module
    """The original model with the weights of the last supernet that had all of its channels."""


@dataclass(frozen=True, eq=False)
class _Found:
    """The result of one stage, with the models that the next one may begin with."""

    result: FoundWidths
    """The widths found, as the stage numbers its channels."""
    kept: dict[str, list[int]]
    """The channels found, numbered as in the original model."""
    untrained: nn.Module
    """The slim model with the original model's weights."""
    trained: nn.Module
    """The slim model with the weights of the stage's supernet."""
    whole: nn.Module
    """The original model with the weights of the last supernet that had all of its channels."""
    place: Path
    """The directory of the stage."""


@dataclass(frozen=True, eq=False)
class _Stages:
    """The parts that the stages of one search have in common."""

    original: WidthSpace
    example_inputs: Any
    job: Job
    config: StagesConfig
    directory: Path

    def start_after(self, found: _Found, stage: Stage) -> _Start:
        """Return what a stage begins with: the model found before, or the whole one if that cannot meet the budget."""
        carries = self.config.carry_weights
        narrowed = narrowed_space(found.untrained, self.example_inputs, self.job, self.original, stage)
        if narrowed is None:
            return _Start(self.original, found.whole if carries else self.original.model, {}, found.whole)
        return _Start(narrowed, found.trained if carries else found.untrained, found.kept, found.whole)

    def run(self, stage: Stage, job: Job, start: _Start) -> _Found:
        """Train and search one stage, and cut out what it found."""
        space, place = start.space, stage_place(self.directory, stage.number)
        if stage.number > 1:
            place = place_for(self.directory, place.name, start.kept)
        own = announced_part(
            job_of_stage(job, self.original, space), stage, start.kept if space is not self.original else None
        )
        supernet, result = run_stage(start.weights, space, stage, own, place)
        channels = channels_before(space, result.channels, supernet.order)
        learned = in_order(space, supernet.model, np.argsort(supernet.order))
        return _Found(
            result=result,
            kept=composed(start.kept, channels),
            untrained=space.extract(channels=channels),
            trained=space.extract(channels=channels, model=learned),
            whole=learned if space is self.original else start.whole,
            place=place,
        )


def announced_part(job: Job, stage: Stage, kept: Mapping[str, list[int]] | None) -> Job:
    """Let the workers of a shared search know which stage it is.

    Args:
        job: The data and options of the stage.
        stage: The stage.
        kept: The channels of the original model that the stage begins with, or None for all.

    Returns:
        The job, unchanged if its search is not shared.
    """
    if job.shared is None:
        return job
    part = {**job.shared.part, "stage": stage.number, "beta": stage.beta, "kept": kept}
    return replace(job, shared=replace(job.shared, part=part))


def narrowed_space(
    model: nn.Module, example_inputs: Any, job: Job, original: WidthSpace, stage: Stage
) -> WidthSpace | None:
    """Return the space of a model that a stage found.

    Only widths that the original could have may vary. A grouped convolution that is left with one channel per group
    looks like a depthwise one, whose channels are not tied; such groups are frozen. A minimum width that is a share
    refers to the channels of the original.

    Args:
        model: The model that the stage before found.
        example_inputs: Inputs that it is traced with.
        job: The job of the whole search.
        original: The width space of the original model.
        stage: The next stage.

    Returns:
        The space, or None if no width of it meets the stage's budget.
    """
    ties, full, share = {group.name: group.divisor for group in original.groups}, original.full_widths, 0.0
    if isinstance(job.supernet.min_width, float):
        share = job.supernet.min_width
    try:
        options: dict[str, Any] = {"outputs": job.outputs, "head_sizes": job.head_sizes}
        space = trace(model, example_inputs, freeze=job.freeze, **options)
        loose = tuple(
            group.name for group in space.groups if ties.get(group.name) != group.divisor and not group.crosses_another
        )
        if loose:
            space = trace(model, example_inputs, freeze=(*job.freeze, *loose), **options)
        least = [min(group.channels, math.ceil(share * full[group.name])) for group in space.groups]
        groups = zip(space.groups, least, strict=True)
        space = replace(space, groups=tuple(replace(each, min_width=max(each.min_width, n)) for each, n in groups))
        check_feasible(space, job_of_stage(job, original, space), stage)
    except (BudgetError, TraceError):  # TraceError: nothing is left that varies
        return None
    return space


def job_of_stage(job: Job, original: WidthSpace, space: WidthSpace) -> Job:
    """Convert shares of the original model's FLOPs to shares of a stage's. Minimum widths are part of its space.

    Args:
        job: The job of the whole search.
        original: The width space of the original model.
        space: The width space of the stage.

    Returns:
        The job of the stage.
    """
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
    write_file(START, place, begins_with)
    return place


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
