"""The whole search in one call, for a user's own model and data."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, Dataset

from cafenet.common.directories import usable_directory
from cafenet.common.files import write_json
from cafenet.common.options import check_arguments
from cafenet.common.plain_values import plain_numbers
from cafenet.common.run_files import ENTRIES, RECIPE, SEARCH, SPACE, read_if_there
from cafenet.common.user_code import UserPart
from cafenet.errors import BudgetError, ScoringError, TrainingError, first_line
from cafenet.modules.batches import LossFunction
from cafenet.modules.calling import call_arguments, expect_values, training_mode, unwrap
from cafenet.modules.snapshot import unchanged
from cafenet.pipeline.stages import (
    Job,
    Stage,
    StagesConfig,
    StagesResult,
    check_feasible,
    latencies_before,
    place_for,
    plan_stages,
    search_in_stages,
    stages_for,
)
from cafenet.scoring.examples import Data, hold_examples
from cafenet.scoring.metrics import Metric, check_labels, expect_function, is_per_example, metric_by_name, metric_name
from cafenet.scoring.recalibration import recalibrate_model
from cafenet.scoring.scorer import ScoringConfig
from cafenet.searching.algorithms.base import METHODS, Algorithm
from cafenet.searching.algorithms.trend import Trend
from cafenet.searching.budget import Budget, parse_budget
from cafenet.searching.latency.measure import LatencyConfig, measure_latency
from cafenet.searching.result import SearchResult
from cafenet.searching.width_search import SearchConfig
from cafenet.space.description import describe_space
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.build import SupernetConfig, build_bins
from cafenet.supernet.plain_training import initialised, train_model
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.train import TrainConfig, check_training
from cafenet.tracing.tracer import trace
from cafenet.training.batch_feed import as_dataset

_FEW = 8
"""Examples that show whether a metric fits."""


@dataclass(frozen=True, eq=False)
class Found:
    """What a search hands back."""

    model: nn.Module
    """The slim model: trained where `retrain` was given, else with the supernet's weights."""
    result: SearchResult
    space: WidthSpace
    """Of the original model."""

    def __repr__(self) -> str:
        return repr(self.result)

    def _repr_html_(self) -> str:
        return self.result._repr_html_()


def search(
    model: nn.Module,
    example_inputs: Any,
    train: Dataset[Any] | DataLoader[Any],
    val: Data,
    budget: str = "50%",
    *,
    loss: str | LossFunction = "cross_entropy",
    metric: str | Metric = "accuracy",
    training: TrainConfig | None = None,
    sampling: SamplingConfig | None = None,
    retrain: TrainConfig | None = None,
    start: Literal["supernet", "scratch"] = "supernet",
    supernet: SupernetConfig | None = None,
    algorithm: Algorithm | None = None,
    stages: StagesConfig | None = None,
    settings: SearchConfig | None = None,
    scoring: ScoringConfig | None = None,
    latency: LatencyConfig | None = None,
    freeze: tuple[str, ...] = (),
    directory: str | Path | None = None,
    quiet: bool = False,
) -> Found:
    """Find the best widths of a model within a budget ("50%", "150M", "1.5M params", "12ms") and return the slim model.

    train, val: data that the supernet learns from and that widths are scored on; keep the test set out of both.
    training: of the supernet. retrain: of the slim model; None keeps the supernet's weights. start: what that training
    begins with, the supernet's weights, which gets farther in as many epochs, or fresh ones, as in the paper.
    stages: by default two that share the supernet's epochs; the first searches for a budget half-way to the one asked
    for, and the second goes on from there. With start="scratch", also without `retrain`, and a budget of half or more
    it is one. The directory of an earlier search keeps the stages of that one.
    directory: where checkpoints, scores and results go; a second call with the same one continues the first, and
    `cafenet report` makes a page of it.
    The model itself is not changed.
    """
    if start not in ("supernet", "scratch"):
        raise TrainingError(f"start must be supernet or scratch, but is {start!r}")
    check_arguments(
        TrainingError,
        training=(training, TrainConfig | None),
        retrain=(retrain, TrainConfig | None),
        sampling=(sampling, SamplingConfig | None),
        supernet=(supernet, SupernetConfig | None),
        stages=(stages, StagesConfig | None),
        settings=(settings, SearchConfig | None),
        scoring=(scoring, ScoringConfig | None),
        latency=(latency, LatencyConfig | None),
        quiet=(quiet, bool),
    )
    expect_values(unwrap(model), TrainingError)
    directory = None if directory is None else usable_directory(directory, TrainingError)
    model, train, retrain, stages = unwrap(model), as_dataset(train), plain_numbers(retrain), plain_numbers(stages)
    job = Job(
        train=train,
        validation=list(val) if isinstance(val, Iterator) else val,  # every stage reads them
        loss=loss,
        metric=metric,
        supernet=plain_numbers(supernet) or SupernetConfig(),
        training=plain_numbers(training) or TrainConfig(),
        sampling=plain_numbers(sampling) or SamplingConfig(),
        algorithm=plain_numbers(algorithm) or Trend(),
        search=plain_numbers(settings) or SearchConfig(),
        scoring=plain_numbers(scoring) or ScoringConfig(),
        latency=plain_numbers(latency) or LatencyConfig(),
        freeze=freeze,
        quiet=quiet,
    )
    space = trace(model, example_inputs, freeze=freeze)
    before = None if directory is None else latencies_before(Path(directory), str(budget).strip(), space, job.latency)

    @cache
    def measure() -> float:
        """What the budget is a share of: at a second start what it was at the first."""
        return measure_latency(model, example_inputs, job.latency) if before is None else before["full_ms"]

    parsed = parse_budget(budget, space, full_latency_ms=measure)
    full = {"flops": float(space.flops()), "params": float(space.params())}
    if any(cap.cost == "latency_ms" for cap in parsed.caps):
        full["latency_ms"] = measure()
    stages = stages or _stages_before(directory) or stages_for(parsed, full, start)
    check_training(job.training, train, next(model.parameters()).device, loss)
    if retrain is not None:
        check_training(retrain, train, next(model.parameters()).device, loss)
    is_fresh = directory is None or not (Path(directory) / "search.json").exists()
    _check(job, space, plan_stages(parsed, full, job.supernet.beta, stages), is_fresh)
    if before is None:
        _check_latency(job, space, parsed, example_inputs)
    with _place(directory) as place:
        if not (place / SEARCH.name).exists():  # else once the checkpoint has not refused the options
            _describe(model, space, job, budget, stages, place)
        found = search_in_stages(model, example_inputs, parsed, job, stages, place, full)
        _describe(model, space, job, budget, stages, place)
        write_json(place / ENTRIES.name, [_entry(found)])
        slim = found.slim
        if retrain is None or start == "supernet":
            num_examples, device = job.scoring.calibration_size, next(slim.parameters()).device
            recalibrate_model(slim, hold_examples(train, "training data", num_examples=num_examples, device=device))
        else:
            slim = space.extract(channels=found.result.channels, model=initialised(model, retrain.seed))
        if retrain is not None:
            begins_with = {"channels": found.result.channels} | (
                {"stage": found.place.name} if start == "supernet" else {}
            )
            kept = place_for(place, "retrain" if start == "scratch" else "finetune", begins_with)
            slim = train_model(slim, example_inputs, train, retrain, loss=loss, directory=kept, quiet=quiet)
    return Found(slim, found.result, space)


def _describe(model: nn.Module, space: WidthSpace, job: Job, budget: str, stages: StagesConfig, place: Path) -> None:
    """What a report tells of the search beside its scores."""
    parts = ("supernet", "training", "sampling", "algorithm", "search", "scoring", "latency", "freeze")
    content = {
        "format": "cafenet-search",
        "format_version": 1,
        "description": f"{type(model).__name__} at {budget}",
        "budget": budget,
        "metric": metric_name(job.metric),
        "settings": {name: _plain(getattr(job, name)) for name in parts} | {"stages": _plain(stages)},
    }
    write_json(place / SEARCH.name, content)
    write_json(place / SPACE.name, describe_space(space, build_bins(space, job.supernet)))


def _stages_before(directory: str | Path | None) -> StagesConfig | None:
    """The stages of the search that a directory holds."""
    found = None if directory is None else read_if_there(SEARCH, Path(directory))
    stages = None if found is None else found["settings"].get("stages")
    return None if stages is None else StagesConfig(**stages)


def _plain(config: Any) -> Any:
    """As JSON takes it; an algorithm of the user's own may be any object."""
    content = asdict(config) if is_dataclass(config) and not isinstance(config, type) else config
    return json.loads(json.dumps(content, default=repr))


def _entry(found: StagesResult) -> dict[str, Any]:
    """What was found, as a run keeps it."""
    result = found.result
    method = METHODS.get(result.algorithm, f"CafeNet ({result.algorithm})")
    channels = dict(result.channels)
    return {
        "method": method,
        "budget": result.budget,
        "channels": channels,
        "search_score": result.score,
        "supernet": found.place.name,
    }


def _check(job: Job, space: WidthSpace, plan: Sequence[Stage], is_fresh: bool) -> None:
    """What a stage's search would refuse, before a supernet is trained for it.

    is_fresh: whether nothing was trained before; then all labels are looked at, which may take as long as reading them.
    """
    if isinstance(job.algorithm, type) or not all(hasattr(job.algorithm, name) for name in ("name", "proposals")):
        raise BudgetError(f"algorithm must be one such as cafenet.Trend(samples=300), but is {job.algorithm!r}")
    for stage in plan:
        check_feasible(space, job, stage)
    metric: Metric = (
        metric_by_name(job.metric, job.loss)
        if isinstance(job.metric, str)
        else UserPart(expect_function(job.metric), "the metric", "the check before the search")
    )
    _few_outputs(space.model, job.train, "training data")
    output, target, size = _few_outputs(space.model, job.validation, "validation data")
    is_per_example(metric, output, target, size)
    if is_fresh and isinstance(job.metric, str):
        most = job.scoring.max_examples
        _, target = hold_examples(job.validation, "validation data", num_examples=most).batch
        check_labels(output, target, "validation data")


def _few_outputs(model: nn.Module, data: Data, name: str) -> tuple[Any, Any, int]:
    """What the model says of a few examples, read as scoring reads them, with their targets and number."""
    held = hold_examples(data, name, num_examples=_FEW, device=next(model.parameters()).device)
    args, kwargs = call_arguments(held.batch[0])
    try:
        with unchanged(model), training_mode(model, False), torch.no_grad():
            return model(*args, **kwargs), held.batch[1], held.size
    except (RuntimeError, ValueError, TypeError) as error:
        shapes = [list(leaf.shape) for leaf in tree_leaves(held.batch[0]) if isinstance(leaf, torch.Tensor)]
        raise ScoringError(
            f"the model must take the inputs of the {name}, which are {shapes} for {held.size} examples, but: "
            f"{first_line(error)}; a list must hold batches, or examples whose target is one number"
        ) from error


def _check_latency(job: Job, space: WidthSpace, budget: Budget, example_inputs: Any) -> None:
    """The smallest subnet must keep a cap on latency."""
    bins = build_bins(space, job.supernet)
    for cap in budget.caps:
        if cap.cost == "latency_ms":
            smallest = space.extract(bins.widths(bins.num_bins * 0 + 1).tolist())
            measured = measure_latency(smallest, example_inputs, job.latency)
            if measured > cap.limit:
                raise BudgetError(
                    f"`budget >= smallest subnet` must hold, but {budget.text!r} allows {cap} and the smallest subnet "
                    f"takes {measured:.3g} ms; raise the budget or lower min_width"
                )


@contextmanager
def _place(directory: str | Path | None) -> Iterator[Path]:
    if directory is not None:
        if (Path(directory) / RECIPE.name).exists():
            raise TrainingError(f"{directory} holds a run of `cafenet run`, no search; give another directory")
        yield Path(directory)
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)
