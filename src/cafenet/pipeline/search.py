"""The whole search in one call, for a user's own model and data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

from torch import nn
from torch.utils.data import DataLoader, Dataset

from cafenet.common.directories import usable_directory
from cafenet.common.options import Positive, Seed, check_arguments
from cafenet.common.plain_values import plain_numbers
from cafenet.common.run_files import SEARCH, budget_place
from cafenet.errors import BudgetError, TrainingError
from cafenet.modules.batches import LossFunction
from cafenet.modules.calling import expect_values, unwrap
from cafenet.pipeline.checks import check_latency, check_search
from cafenet.pipeline.directory import describe_search, kept_in, stages_before, write_entry
from cafenet.pipeline.options import SearchOptions
from cafenet.pipeline.result import SearchResult, SearchResults
from cafenet.pipeline.stages import (
    Job,
    StagesConfig,
    StagesResult,
    first_place,
    latencies_before,
    place_for,
    plan_stages,
    search_in_stages,
    stages_for,
)
from cafenet.scoring.examples import Data, hold_examples
from cafenet.scoring.metrics import Metric
from cafenet.scoring.recalibration import recalibrate_model
from cafenet.searching.budget import Budget, expect_different, parse_budget
from cafenet.searching.latency.measure import measure_latency
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.plain_training import initialised, train_model
from cafenet.supernet.train import TrainConfig, check_training, share_full_network
from cafenet.tracing.tracer import trace
from cafenet.training.batch_feed import as_dataset


@overload
def search(
    model: nn.Module,
    train_data: Dataset[Any] | DataLoader[Any],
    val_data: Data,
    budget: str = "50%",
    *,
    epochs: float | None = None,
    finetune_epochs: float | None = None,
    train: TrainConfig | None = None,
    finetune: TrainConfig | None = None,
    loss: str | LossFunction = "cross_entropy",
    metric: str | Metric = "accuracy",
    options: SearchOptions | None = None,
    example_inputs: Any = None,
    freeze: str | Sequence[str] = (),
    outputs: str | int | Sequence[str | int] | None = None,
    start: Literal["supernet", "scratch"] = "supernet",
    seed: int = 0,
    directory: str | Path | None = None,
    quiet: bool = False,
) -> SearchResult: ...
@overload
def search(
    model: nn.Module,
    train_data: Dataset[Any] | DataLoader[Any],
    val_data: Data,
    budget: list[str] | tuple[str, ...],
    *,
    epochs: float | None = None,
    finetune_epochs: float | None = None,
    train: TrainConfig | None = None,
    finetune: TrainConfig | None = None,
    loss: str | LossFunction = "cross_entropy",
    metric: str | Metric = "accuracy",
    options: SearchOptions | None = None,
    example_inputs: Any = None,
    freeze: str | Sequence[str] = (),
    outputs: str | int | Sequence[str | int] | None = None,
    start: Literal["supernet", "scratch"] = "supernet",
    seed: int = 0,
    directory: str | Path | None = None,
    quiet: bool = False,
) -> SearchResults: ...
def search(
    model: nn.Module,
    train_data: Dataset[Any] | DataLoader[Any],
    val_data: Data,
    budget: str | list[str] | tuple[str, ...] = "50%",
    *,
    epochs: float | None = None,
    finetune_epochs: float | None = None,
    train: TrainConfig | None = None,
    finetune: TrainConfig | None = None,
    loss: str | LossFunction = "cross_entropy",
    metric: str | Metric = "accuracy",
    options: SearchOptions | None = None,
    example_inputs: Any = None,
    freeze: str | Sequence[str] = (),
    outputs: str | int | Sequence[str | int] | None = None,
    start: Literal["supernet", "scratch"] = "supernet",
    seed: int = 0,
    directory: str | Path | None = None,
    quiet: bool = False,
) -> SearchResult | SearchResults:
    """Find the best widths of a model within a budget and return the slim model.

    The model itself is not changed.

    Args:
        model: The network whose widths are searched.
        train_data: Training data of the supernet and the slim model: a data set or a loader of pairs (inputs, target).
        val_data: Validation data that widths are scored on. Keep the test set out of both.
        budget: "50%" or "150M" (FLOPs), "1.5M params", "12ms", or several caps at once: "50%+1.5M params". A list, or
            commas ("50%,25%"), asks for several slim models.
        epochs: Number of epochs of the supernet's training, short for `train=TrainConfig(epochs=...)`.
        finetune_epochs: Number of epochs of the slim model's training, short for
            `finetune=TrainConfig(epochs=...)`.
        train: Options of the supernet's training. It cannot be combined with `epochs` or `finetune_epochs`.
        finetune: Options of the slim model's training. It cannot be combined with `epochs` or `finetune_epochs`. If
            neither it nor `finetune_epochs` is given, the slim model keeps the supernet's weights.
        loss: "cross_entropy", "bce" or a function of (output, target).
        metric: The measure of quality, where higher is better: "accuracy", "negative_loss" or a function of
            (output, target).
        options: All other options: the supernet, sampling, stages, the algorithm, scoring and latency.
        example_inputs: Inputs that the model is traced with; by default those of one training example.
        freeze: Name patterns of layers that keep their widths, as in `cafenet.trace`.
        outputs: The parts of the model's output that matter, as in `cafenet.trace`; by default all.
        start: Weights that the slim model's training starts from: "supernet" takes those of the supernet, which reach
            a better result in the same number of epochs; "scratch" takes fresh ones, as in the paper.
        seed: Seed of the trainings, of fresh weights and of the search.
        directory: Directory for checkpoints, scores and results. A second call with the same directory continues the
            first. If there are several budgets, each has its own directory in it.
        quiet: True shows no progress.

    Returns:
        The slim model with its widths, costs and score. Several budgets give a sequence of such results, which can also
        be looked up by budget.

    Raises:
        CafeNetError: If an argument, the model or the data cannot be used. It is raised before the first training
            wherever the problem can be known by then.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from torch.utils.data import TensorDataset
        >>> import cafenet
        >>> model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
        >>> data = TensorDataset(torch.randn(256, 1, 4, 4), torch.arange(256) % 2)
        >>> options = cafenet.SearchOptions(algorithm=cafenet.RandomSearch(samples=4))
        >>> result = cafenet.search(model, data, data, budget="50%", epochs=1, options=options, quiet=True)
        >>> result.widths, result.costs
        ({'0': 4}, {'flops': 176.0, 'params': 74.0})
        >>> result.model[0]
        Conv2d(1, 4, kernel_size=(3, 3), stride=(1, 1))
    """
    check_arguments(
        TrainingError,
        epochs=(epochs, Positive | None),
        finetune_epochs=(finetune_epochs, Positive | None),
        train=(train, TrainConfig | None),
        finetune=(finetune, TrainConfig | None),
        options=(options, SearchOptions | None),
        start=(start, Literal["supernet", "scratch"]),
        seed=(seed, Seed),
        quiet=(quiet, bool),
    )
    model, train_data = unwrap(model), as_dataset(train_data)
    expect_values(model, TrainingError)
    training, final = _trainings(epochs, finetune_epochs, train, finetune, int(seed))
    options = plain_numbers(options) or SearchOptions()
    directory = None if directory is None else usable_directory(directory, TrainingError)
    device = next(model.parameters()).device
    if example_inputs is None:
        example_inputs = hold_examples(train_data, "training data", num_examples=1, device=device).batch[0]
    job = Job(
        train=train_data,
        validation=list(val_data) if isinstance(val_data, Iterator) else val_data,  # every stage reads them
        loss=loss,
        metric=metric,
        supernet=options.supernet,
        training=training,
        sampling=options.sampling,
        algorithm=options.algorithm,
        search=options.search_config(int(seed)),
        scoring=options.scoring,
        latency=options.latency,
        freeze=(freeze,) if isinstance(freeze, str) else freeze,  # type: ignore[arg-type]
        outputs=outputs,
        quiet=quiet,
    )
    space = trace(model, example_inputs, freeze=job.freeze, outputs=outputs)
    whole = _Whole(model, example_inputs, space, job, final, start)
    is_several = not isinstance(budget, str) or "," in budget
    with kept_in(directory) as place:
        asked = [
            whole.ask(text, budget_place(place, text) if is_several else place, options.stages)
            for text in _texts(budget)
        ]
        expect_different([each.budget for each in asked])
        whole.check(asked)
        results = []
        for number, each in enumerate(asked):
            for other in asked[:number]:
                if other.stages == each.stages:  # then their full networks are the same
                    share_full_network(first_place(other.place), first_place(each.place))
            results.append(whole.search(each, is_kept=directory is not None))
    return SearchResults(results) if is_several else results[0]


def _trainings(
    epochs: float | None,
    finetune_epochs: float | None,
    train: TrainConfig | None,
    finetune: TrainConfig | None,
    seed: int,
) -> tuple[TrainConfig, TrainConfig | None]:
    """Return the options of the supernet's training and of the slim model's, both with the seed of the search."""
    is_short, is_long = (epochs, finetune_epochs) != (None, None), (train, finetune) != (None, None)
    if is_short and is_long:
        raise TrainingError(
            "epochs and finetune_epochs must not be given together with train or finetune; write "
            "train=TrainConfig(epochs=...) and finetune=TrainConfig(epochs=...)"
        )
    if is_short:
        train = None if epochs is None else TrainConfig(epochs=epochs)
        finetune = None if finetune_epochs is None else TrainConfig(epochs=finetune_epochs)
    for name, config in (("train", train), ("finetune", finetune)):
        if config is not None and config.seed not in (0, seed):
            raise TrainingError(f"{name}.seed must be left out, since seed decides, but is {config.seed}")
    seeded = replace(plain_numbers(train) or TrainConfig(), seed=seed)
    return seeded, None if finetune is None else replace(plain_numbers(finetune), seed=seed)


def _texts(budget: Any) -> list[Any]:
    """Return the budgets one by one. `parse_budget` refuses values that are not text."""
    several = budget if isinstance(budget, (list, tuple)) else [budget]
    texts = [part for each in several for part in (each.split(",") if isinstance(each, str) else [each])]
    if not texts:
        raise BudgetError('a budget must be a text such as "50%", or several of them, but there is none')
    return texts


@dataclass(frozen=True, eq=False)
class _Asked:
    """One budget with the stages and the directory of its search."""

    budget: Budget
    full_costs: dict[str, float]
    stages: StagesConfig
    place: Path
    is_measured_before: bool
    """True if an earlier search in the same directory has measured the latencies."""


@dataclass(frozen=True, eq=False)
class _Whole:
    """The parts that the searches of all budgets have in common."""

    model: nn.Module
    example_inputs: Any
    space: WidthSpace
    job: Job
    final: TrainConfig | None
    start: Literal["supernet", "scratch"]

    @cached_property
    def full_latency_ms(self) -> float:
        """Latency of the full model, measured once for all budgets."""
        return measure_latency(self.model, self.example_inputs, self.job.latency)

    def ask(self, text: Any, place: Path, stages: StagesConfig | None) -> _Asked:
        """Read a budget. A second start takes the latencies that the first one measured."""
        before = latencies_before(place, str(text).strip(), self.space, self.job.latency)

        def measure() -> float:
            """Return the latency of the full model, to which a percentage refers."""
            return self.full_latency_ms if before is None else before["full_ms"]

        budget = parse_budget(text, self.space, full_latency_ms=measure)
        full = {"flops": float(self.space.flops()), "params": float(self.space.params())}
        if any(cap.cost == "latency_ms" for cap in budget.caps):
            full["latency_ms"] = measure()
        stages = stages or stages_before(place) or stages_for(budget, full, self.start)
        return _Asked(budget, full, stages, place, before is not None)

    def check(self, asked: Sequence[_Asked]) -> None:
        """Report problems before the first training."""
        for training in (self.job.training, self.final):
            if training is not None:
                check_training(training, self.job.train, next(self.model.parameters()).device, self.job.loss)
        beta = self.job.supernet.beta
        plans = [plan_stages(each.budget, each.full_costs, beta, each.stages) for each in asked]
        is_fresh = not all((each.place / SEARCH.name).exists() for each in asked)
        check_search(self.job, self.space, [stage for plan in plans for stage in plan], is_fresh)
        for each in asked:
            if not each.is_measured_before:
                check_latency(self.job, self.space, each.budget, self.example_inputs)

    def search(self, asked: _Asked, *, is_kept: bool) -> SearchResult:
        """Search one budget and return its slim model."""
        place, budget = asked.place, asked.budget
        if not (place / SEARCH.name).exists():  # else once the checkpoint has not refused the options
            describe_search(self.model, self.space, self.job, budget.text, asked.stages, place)
        found = search_in_stages(
            self.model, self.example_inputs, budget, self.job, asked.stages, place, asked.full_costs
        )
        describe_search(self.model, self.space, self.job, budget.text, asked.stages, place)
        write_entry(found, place)
        slim = self._finished(found, place)
        return SearchResult(slim, found.result, self.space, self.example_inputs, place if is_kept else None)

    def _finished(self, found: StagesResult, place: Path) -> nn.Module:
        """Return the slim model with recalibrated statistics, trained if the user asked for it."""
        slim, job, channels = found.slim, self.job, found.result.channels
        if self.final is None or self.start == "supernet":
            num_examples, device = job.scoring.calibration_size, next(slim.parameters()).device
            recalibrate_model(slim, hold_examples(job.train, "training data", num_examples=num_examples, device=device))
        else:
            slim = self.space.extract(channels=channels, model=initialised(self.model, self.final.seed))
        if self.final is None:
            return slim
        is_fresh = self.start == "scratch"
        begins_with = {"channels": channels} | ({} if is_fresh else {"stage": found.place.name})
        kept = place_for(place, "scratch" if is_fresh else "finetune", begins_with)
        return train_model(
            slim, self.example_inputs, job.train, self.final, loss=job.loss, directory=kept, quiet=job.quiet
        )
