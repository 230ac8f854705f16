"""The plan of a search before the work: what is trained and scored, about how long that takes, what is written where.

The time comes from a few steps of the first supernet and of the model on this machine, and from a Uniform model within
the budget, which is as large as the widths that are scored and the model that is handed back. It is a guide: other work
on the machine counts. While the work goes on, its progress corrects the plan.
"""

import time
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from cafenet.common.events import logging_nothing
from cafenet.common.job_progress import duration
from cafenet.common.run_files import STAGES
from cafenet.common.run_places import search_place
from cafenet.modules.batch_norm import has_statistics
from cafenet.pipeline.baseline import uniform_cut
from cafenet.pipeline.gain import ROUNDS
from cafenet.pipeline.job import Job
from cafenet.pipeline.one_stage import band_about
from cafenet.pipeline.stage_plan import Stage, StagesConfig, plan_jobs, plan_stages
from cafenet.scoring.examples import hold_examples
from cafenet.scoring.model_score import output_of
from cafenet.searching.budget import COUNTED, Budget
from cafenet.searching.feasible import Feasible
from cafenet.searching.latency.correction import CHECKS
from cafenet.searching.latency.estimate import NUM_MEASURED
from cafenet.searching.latency.measure import measure_latency
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.build import build_bins, build_supernet
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.train import of_one_width, train_supernet
from cafenet.training.batch_feed import Feed
from cafenet.training.config import TrainConfig

_FEW_STEPS = 3


@dataclass(frozen=True)
class PlannedPart:
    """One part of the work."""

    text: str
    """Description of the part."""
    seconds: float | None
    """Estimated seconds of the part; None if nobody knows."""


@dataclass(frozen=True)
class SearchPlan:
    """The parts of a search in their order. Printed, it is a short list with the total."""

    title: str
    """The budget that is searched for."""
    parts: tuple[PlannedPart, ...]
    """The parts."""
    place: Path | None
    """Directory of the search; None if nothing is kept."""
    is_begun: bool
    """True if the directory holds a search already."""

    def __str__(self) -> str:
        lines = [f"Plan for {self.title}:"]
        for number, part in enumerate(self.parts, 1):
            about = "" if part.seconds is None else f", {_about(part.seconds)}"
            lines.append(f"  {number}. {part.text}{about}")
        known = [part.seconds for part in self.parts if part.seconds is not None]
        if known:
            lines.append(f"  In all {_about(sum(known))} on this machine, judging by {_FEW_STEPS} timed steps.")
        if self.is_begun:
            lines.append(f"  {self.place} holds a search already: what is done there is not done again.")
        elif self.place is not None:
            lines.append(f"  Written to {self.place}: checkpoints, scores and models; a second call continues.")
        else:
            lines.append("  Nothing is kept on disk; directory= would keep it and make the search resumable.")
        return "\n".join(lines)


def _about(seconds: float) -> str:
    """Return a time in words that promise no more than is known."""
    return "under a second" if seconds < 1 else f"about {duration(seconds)}"


def total_of(plans: Sequence[SearchPlan]) -> str:
    """Return the time of several searches together.

    Args:
        plans: The plan of each budget.

    Returns:
        One line, or an empty text for a single plan or where no time is known.
    """
    known = [part.seconds for plan in plans for part in plan.parts if part.seconds is not None]
    return f"All {len(plans)} budgets: {_about(sum(known))}." if len(plans) > 1 and known else ""


def plan_search(
    model: nn.Module,
    space: WidthSpace,
    job: Job,
    budget: Budget,
    stages: StagesConfig,
    final: TrainConfig | None,
    uniform: TrainConfig | None,
    place: Path | None,
    *,
    example_inputs: Any,
    num_test: int | None = None,
    is_distilled: bool = False,
) -> SearchPlan:
    """Plan a search, and time a few steps of it unless its directory holds a search already.

    Args:
        model: The original model; it is not changed.
        space: The width space of the model.
        job: The data and options of the search.
        budget: The budget of the search.
        stages: Options of the stages.
        final: Options of the slim model's training, if there is one.
        uniform: Options of Uniform's training, if there is one.
        place: Directory of the search, or None.
        example_inputs: Inputs that latencies are measured with.
        num_test: Number of test examples, if there are any and their number is known.
        is_distilled: Whether the slim model and Uniform also learn the outputs of the original model.

    Returns:
        The plan.
    """
    is_begun = place is not None and (search_place(place, budget.text) / STAGES.name).exists()
    full: dict[str, float] = {cap.cost: _full_cost(space, cap.cost, cap.limit) for cap in budget.caps}
    jobs = plan_jobs(job, stages)
    step = None if is_begun else _seconds_per_step(model, space, budget, jobs[0])
    slim = model if is_begun else _about_as_slim(model, space, budget, job)
    example = None if is_begun else _seconds_per_example(slim, job)
    measuring = None if is_begun else _seconds_per_latency(model, example_inputs, job)
    parts = []
    for stage, own in zip(plan_stages(budget, full, job.supernet.beta, stages), jobs, strict=True):
        parts += _stage_parts(space, stage, own, step, example, measuring)
    slim_step = None
    if example is not None and final is not None:
        full_example = _seconds_per_example(model, job)
        share = min(example / max(full_example, 1e-9), 1.0)
        slim_step = _seconds_per_slim_step(model, space, job, final, share)
        if is_distilled:
            feed = Feed(job.train_data, batch_size=final.batch_size, accumulate=final.accumulate)
            slim_step += feed.batch_size * final.accumulate * full_example  # the teacher's forward
    for config, name in ((final, "slim model"), (uniform, "Uniform model for comparison")):
        if config is not None:
            learned = ", with the given model as the teacher," if is_distilled else ""
            parts.append(_training(f"train the {name}{learned}", config, job, slim_step))
    parts.append(_comparison(model, job, 2 + (uniform is not None), num_test, measuring))
    return SearchPlan(budget.text, tuple(parts), place, is_begun)


def _full_cost(space: WidthSpace, cost: str, limit: float) -> float:
    """Return the full model's cost, as far as it is known without a measurement."""
    known = {"flops": float(space.flops()), "params": float(space.params())}
    return known.get(cost, limit)


def _stage_parts(
    space: WidthSpace, stage: Stage, job: Job, step: float | None, example: float | None, measuring: float | None
) -> list[PlannedPart]:
    """Return the training and the scoring of one stage."""
    caps = tuple(cap for cap in stage.budget.caps if cap.cost in COUNTED)
    feasible = Feasible(
        build_bins(space, job.supernet), {"flops": space.flops, "params": space.params}, Budget("", caps)
    )
    num_widths = job.algorithm.num_widths(feasible)
    size = min(length_of(job.val_data) or job.scoring.max_examples, job.scoring.max_examples)
    if has_statistics(space.model):
        size += job.scoring.calibration_size
    seconds = None if example is None else num_widths * size * example
    latencies = ""
    if stage.budget.is_measured and any(cap.cost == "latency_ms" for cap in stage.budget.caps):
        number = NUM_MEASURED + 1 + CHECKS  # for the estimate, and for a pick that is kept
        latencies = f" and measure about {number} latencies"
        if seconds is not None and measuring is not None:
            seconds += 2 * number * measuring  # each in turns with the full model
    name = f"stage {stage.number}: " if stage.budget.is_on_the_way or stage.number > 1 else ""
    return [
        _training(f"{name}train the supernet", job.training, job, step),
        PlannedPart(f"{name}score about {num_widths:,} widths on up to {size:,} examples{latencies}", seconds),
    ]


def _comparison(
    model: nn.Module, job: Job, num_models: int, num_test: int | None, measuring: float | None
) -> PlannedPart:
    """Return the comparison of the finished models as a part of the plan."""
    text = f"score the {num_models} finished models and measure their latencies in turns"
    if measuring is None:
        return PlannedPart(text, None)
    num_examples = (length_of(job.val_data) or 0) + (num_test or 0)
    return PlannedPart(text, num_models * (num_examples * _seconds_per_example(model, job) + ROUNDS * measuring))


def _training(text: str, config: TrainConfig, job: Job, step: float | None) -> PlannedPart:
    """Return a training as a part of the plan."""
    feed = Feed(
        job.train_data,
        batch_size=config.batch_size,
        accumulate=config.accumulate,
        examples_per_step=config.examples_per_step,
    )
    num_steps = round(config.epochs * feed.steps_per_epoch)
    epochs = f"{config.epochs:g} epoch{'' if config.epochs == 1 else 's'}"
    what = f"{text} for {epochs} ({num_steps:,} steps, rate {config.optimizer.lr:g})"
    return PlannedPart(what, None if step is None else num_steps * step)


def _seconds_per_step(model: nn.Module, space: WidthSpace, budget: Budget, job: Job) -> float:
    """Time a few steps of the first supernet on a copy of the model."""
    sampling = replace(job.sampling, full_share=0.0)
    if sampling.flops_band == "budgets":
        sampling = replace(sampling, flops_band=band_about([budget], space))

    def steps(number: int) -> Callable[[], Any]:
        supernet = build_supernet(model, space, job.supernet, seed=job.training.seed)
        return lambda: train_supernet(
            supernet, job.train_data, job.training, sampling=sampling, loss=job.loss, quiet=True, max_steps=number
        )

    _timed(steps(1))  # the first step compiles kernels
    return max(_timed(steps(1 + _FEW_STEPS)) - _timed(steps(1)), 0.0) / _FEW_STEPS


def _about_as_slim(model: nn.Module, space: WidthSpace, budget: Budget, job: Job) -> nn.Module:
    """Return a Uniform model within the budget, or the model itself if only a latency or a file is capped."""
    caps = tuple(cap for cap in budget.caps if cap.cost in COUNTED)
    if not caps:
        return model
    return uniform_cut(space, model, Budget(budget.text, caps), job.supernet, by_importance=False)


def _seconds_per_slim_step(model: nn.Module, space: WidthSpace, job: Job, config: TrainConfig, share: float) -> float:
    """Time a few steps of the model's own training, and take the share of them that a slim model needs.

    The slim model itself would have to be traced for its steps.
    """

    def steps(number: int) -> Callable[[], Any]:
        whole = of_one_width(model, space)
        return lambda: train_supernet(
            whole, job.train_data, config, sampling=SamplingConfig(), loss=job.loss, quiet=True, max_steps=number
        )

    _timed(steps(1))
    return share * max(_timed(steps(1 + _FEW_STEPS)) - _timed(steps(1)), 0.0) / _FEW_STEPS


def _seconds_per_example(model: nn.Module, job: Job) -> float:
    """Time a model on a batch as widths are scored."""
    held = hold_examples(job.val_data, "validation data", num_examples=job.scoring.batch_size)

    def run() -> Any:
        return output_of(model, held.batch[0], "validation data")

    run()
    return _timed(run) / held.size


def _seconds_per_latency(model: nn.Module, example_inputs: Any, job: Job) -> float:
    """Return how long it takes to measure the latency of the model once: every pass of it, warm-up included.

    A device elsewhere is not asked for that; how long its answer takes is not known, and counts as nothing.
    """
    if job.latency.is_elsewhere:
        return 0.0
    once = replace(job.latency, cache=None)
    return _timed(lambda: measure_latency(model, example_inputs, once))


def _timed(work: Callable[[], Any]) -> float:
    """Return how many seconds something takes. Loggers hear nothing of it: these steps are not the search's."""
    with logging_nothing():
        start = time.perf_counter()
        work()
        return time.perf_counter() - start


def length_of(data: Any) -> int | None:
    """Return the number of examples of a data set, a loader or a list of batches, where it is known at once.

    Args:
        data: The data.

    Returns:
        The number, or None.
    """
    examples = getattr(data, "dataset", data)
    try:
        return len(examples) if isinstance(examples, Sized) else None
    except TypeError:  # a data set without a length
        return None
