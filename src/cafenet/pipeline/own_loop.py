"""The supernet for a training loop of the user's own: `cafenet.Supernet`.

Three concepts are enough: the supernet of a model, a step on a batch, and the search.

    supernet = cafenet.Supernet(model, images, budget="50%")
    for batch in loader:
        supernet.step(batch, "cross_entropy").loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    result = supernet.search(train, validation)
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, overload

import numpy as np
from torch import nn

from cafenet.common.directories import usable_directory
from cafenet.common.events import EventLogger, current_loggers, logging_to
from cafenet.common.loggers import loggers_of
from cafenet.common.options import Seed, check_arguments
from cafenet.common.plain_values import plain_numbers
from cafenet.common.run_places import model_place, search_place, stage_place
from cafenet.errors import BudgetError, TrainingError
from cafenet.modules.batches import LossFunction
from cafenet.modules.unwrapping import unwrap
from cafenet.pipeline.checks import check_data
from cafenet.pipeline.dict_batches import inputs_to_trace
from cafenet.pipeline.directory import SearchDirectory, kept_in
from cafenet.pipeline.gain import measure_gain
from cafenet.pipeline.job import Job
from cafenet.pipeline.lengths import algorithm_of
from cafenet.pipeline.one_stage import band_about, search_trained
from cafenet.pipeline.options import SearchOptions
from cafenet.pipeline.result import SearchResult, SearchResults
from cafenet.pipeline.stage_plan import StagesConfig
from cafenet.pipeline.stages import StagesResult, place_for
from cafenet.pipeline.trained_model import judge
from cafenet.scoring.examples import Data, hold_examples
from cafenet.scoring.metrics import Metric
from cafenet.scoring.recalibration import recalibrate_model
from cafenet.searching.budget import Budget, parse_budgets
from cafenet.searching.file_size import file_bytes
from cafenet.searching.latency.measure import KnownLatency, measure_latency
from cafenet.space.bins import Bins
from cafenet.space.importance import channels_before, importance_order, in_order
from cafenet.space.width_space import WidthSpace
from cafenet.supernet import supernet as weights
from cafenet.supernet.candidate_choice import Choice
from cafenet.supernet.plain_training import train_model
from cafenet.supernet.sharing import Sharing
from cafenet.supernet.step_checks import CheckedLoss
from cafenet.supernet.train import check_training
from cafenet.tracing.tracer import trace
from cafenet.training.config import TrainConfig

_ANY = 1e15
"""Latency and file size of the full model where it only matters whether a budget caps them."""


class Supernet(weights.Supernet):
    """One set of full-width weights that all widths share, for a training loop of your own.

    The supernet owns a copy of the model; your own model is never trained. It is an `nn.Module` whose `state_dict`
    also holds the state of the sampling, so the checkpoints of any training loop continue exactly.

    Example:
        >>> import cafenet, torch
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
        >>> images, labels = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
        >>> supernet = cafenet.Supernet(model, images, budget="50%")
        >>> step = supernet.step((images, labels), nn.functional.cross_entropy)
        >>> step.loss.backward()
    """

    def __init__(
        self,
        model: nn.Module,
        example_inputs: Any,
        bins: Bins | None = None,
        sharing: Sharing | None = None,
        *,
        budget: str | list[str] | tuple[str, ...] | None = None,
        sort_by_importance: bool = False,
        choice: Choice | None = None,
        seed: int = 0,
    ) -> None:
        """Trace the model, copy it and prepare its subnets.

        Args:
            model: The model; it is not changed.
            example_inputs: Inputs that the model is traced with: a tensor, a tuple of positional arguments or a dict of
                keyword arguments. A width space from `cafenet.trace` does as well, for its options such as `freeze`.
            bins: The bins of the groups, by default FLOPs-sensitive ones.
            sharing: The rule by which widths share weights; by default the fixed sharing, `LocallyFree(0)`.
            budget: The budget, or several, that will be searched. `step` then samples widths near them; without a
                budget it samples all widths.
            sort_by_importance: If True, the most important channels of each group are put in front. Use it for a model
                that comes trained.
            choice: Way to find the best candidate, by default `Race()`.
            seed: Seed of the sampled widths and candidates.

        Raises:
            CafeNetError: If an argument is not valid, the model cannot be traced, the budget cannot be met, or the
                sharing does not fit the bins.
        """
        check_arguments(BudgetError, sort_by_importance=(sort_by_importance, bool), seed=(seed, Seed))
        is_traced = isinstance(example_inputs, WidthSpace)
        space = example_inputs if is_traced else trace(unwrap(model), example_inputs)
        order = importance_order(space, model) if sort_by_importance else None
        source = model if order is None else in_order(space, unwrap(model), order)
        super().__init__(source, space, bins, sharing, choice=choice, seed=seed, order=order)
        self.example_inputs = None if is_traced else example_inputs
        """Inputs that the model was traced with, or None if it came with a width space."""
        self.budget = budget
        """The budget that was told, or None."""
        if budget is not None:
            # The band asks only whether latency is capped, which is measured when the search begins.
            self.flops_band = band_about(_budgets(budget, space, lambda: _ANY, lambda: _ANY), space)

    @overload
    def search(
        self,
        train_data: Data,
        val_data: Data,
        budget: str | None = None,
        *,
        loss: str | LossFunction = "cross_entropy",
        metric: str | Metric = "accuracy",
        finetune: TrainConfig | None = None,
        options: SearchOptions | None = None,
        trained: bool | None = None,
        test_data: Data | None = None,
        seed: int = 0,
        directory: str | Path | None = None,
        loggers: Sequence[str | EventLogger] = (),
        quiet: bool = False,
    ) -> SearchResult: ...
    @overload
    def search(
        self,
        train_data: Data,
        val_data: Data,
        budget: list[str] | tuple[str, ...],
        *,
        loss: str | LossFunction = "cross_entropy",
        metric: str | Metric = "accuracy",
        finetune: TrainConfig | None = None,
        options: SearchOptions | None = None,
        trained: bool | None = None,
        test_data: Data | None = None,
        seed: int = 0,
        directory: str | Path | None = None,
        loggers: Sequence[str | EventLogger] = (),
        quiet: bool = False,
    ) -> SearchResults: ...
    def search(
        self,
        train_data: Data,
        val_data: Data,
        budget: str | list[str] | tuple[str, ...] | None = None,
        *,
        loss: str | LossFunction = "cross_entropy",
        metric: str | Metric = "accuracy",
        finetune: TrainConfig | None = None,
        options: SearchOptions | None = None,
        trained: bool | None = None,
        test_data: Data | None = None,
        seed: int = 0,
        directory: str | Path | None = None,
        loggers: Sequence[str | EventLogger] = (),
        quiet: bool = False,
    ) -> SearchResult | SearchResults:
        """Find the best widths within a budget, with the weights as they are, and return the slim model.

        Args:
            train_data: Training data: a data set or a loader of the batches that the supernet was trained with.
            val_data: Validation data that widths are scored on. Keep the test set out of both.
            budget: The budget, or several, as in `cafenet.search`; by default the one that the supernet was told.
            loss: The loss that the supernet was trained with, by name or as a function of (output, target).
            metric: The measure of quality, where higher is better, as in `cafenet.search`.
            finetune: Options of a further training of the slim model. None trains it no further, so that it has the
                supernet's weights and statistics of its own.
            options: The algorithm, scoring and latency. The options of the supernet, of sampling and of stages have no
                effect, because the supernet is there.
            trained: Whether your model came trained. None finds out, for the comparison with the slim model.
            test_data: Data that nothing is chosen on. The finished models are scored on them, too.
            seed: Seed of the search and of the slim model's training.
            directory: Directory for scores and results. A second call with the same directory continues the first.
            loggers: Loggers that get the events of the search, as in `cafenet.search`.
            quiet: True shows no progress.

        Returns:
            The result that `cafenet.search` returns: the slim model with its widths, its costs and what was gained, or
            a sequence of them for several budgets.

        Raises:
            CafeNetError: If an argument or the data cannot be used, or no width meets the budget.

        Example:
            >>> import cafenet, torch
            >>> from torch import nn
            >>> model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
            >>> data = torch.utils.data.TensorDataset(torch.randn(64, 1, 4, 4), torch.arange(64) % 2)
            >>> supernet = cafenet.Supernet(model, torch.zeros(1, 1, 4, 4), budget="50%")
            >>> few = cafenet.SearchOptions(algorithm=cafenet.RandomSearch(samples=4))
            >>> supernet.search(data, data, options=few, quiet=True).widths
            {'0': 4}
        """
        check_arguments(
            TrainingError,
            finetune=(finetune, TrainConfig | None),
            options=(options, SearchOptions | None),
            trained=(trained, bool | None),
            seed=(seed, Seed),
            quiet=(quiet, bool),
        )
        budget = self.budget if budget is None else budget
        if budget is None:
            raise BudgetError('a search needs a budget, but there is none; say supernet.search(..., budget="50%")')
        CheckedLoss(loss)
        chosen: SearchOptions = plain_numbers(options) or SearchOptions()
        job = Job(
            train_data=train_data,  # type: ignore[arg-type]
            val_data=val_data,
            loss=loss,
            metric=metric,
            training=replace(finetune or TrainConfig(), seed=int(seed)),
            algorithm=algorithm_of(chosen, "normal"),
            search=chosen.search_config(int(seed)),
            scoring=chosen.scoring,
            latency=chosen.latency,
            quiet=quiet,
        )
        place = None if directory is None else usable_directory(directory, TrainingError)
        was_training = self.training
        try:
            with logging_to(loggers_of(loggers)), kept_in(place) as kept:
                return _search(self, job, budget, finetune is not None, trained, test_data, kept, place is not None)
        finally:
            self.train(was_training)


def _budgets(
    budget: Any, space: WidthSpace, full_latency_ms: Callable[[], float], full_file_bytes: Callable[[], float]
) -> list[Budget]:
    """Read budgets."""
    full = {"full_latency_ms": full_latency_ms, "full_file_bytes": full_file_bytes}
    texts = list(budget) if isinstance(budget, (list, tuple)) else [budget]
    budgets = [each for text in texts for each in parse_budgets(text, space, **full)]
    if not budgets:
        raise BudgetError('a budget must be a text such as "50%", or several of them, but there is none')
    return budgets


def _search(
    supernet: Supernet,
    job: Job,
    budget: Any,
    is_trained_further: bool,
    trained: bool | None,
    test: Data | None,
    place: Path,
    is_kept: bool,
) -> SearchResult | SearchResults:
    """Search every budget in a directory."""
    inputs = supernet.example_inputs
    if inputs is None:
        held = hold_examples(job.train_data, "training data", num_examples=1, device=supernet.device)
        inputs = inputs_to_trace(supernet.model, held.batch[0])
    if is_trained_further:
        check_training(job.training, job.train_data, supernet.device, job.loss)
    measure = cache(partial(measure_latency, supernet.space.model, inputs, job.latency))
    write = cache(lambda: float(file_bytes(supernet.space.model, inputs, job.latency)))
    budgets = _budgets(budget, supernet.space, measure, write)
    if any(cap.cost == "latency_ms" for each in budgets for cap in each.caps):
        job = replace(job, full=KnownLatency(supernet.space.model, measure()))
    is_several = not isinstance(budget, str) or len(budgets) > 1
    kept = SearchDirectory(place, seed=job.search.seed, budget=budget, is_kept=is_kept)
    check_data(job, supernet.space.model, is_fresh=not kept.is_begun, test=test)
    is_trained = judge(supernet.space.model, job, place, trained).is_trained
    results = []
    texts, stages = [each.text for each in budgets], [StagesConfig()] * len(budgets)
    original, space, bins = supernet.space.model, supernet.space, supernet.binned.bins
    describe = partial(kept.describe, original, space, job, texts, stages, bins)
    if not kept.is_begun:  # else once the study has not refused the options
        describe()
    for each in budgets:
        with kept.timed("search"):
            found = _found(supernet, each, job, search_place(place, each.text))
        describe()
        own = model_place(place, kept.add_entry(found).key, job.training.seed)
        with kept.timed("finetune"):
            slim = _finished(found, inputs, job, own, is_trained_further)
        models = {"before": supernet.space.model, "after": slim}
        gain = measure_gain(
            models,
            supernet.space,
            inputs,
            job,
            is_trained=is_trained,
            uniform="",
            test=test,
            place=own,
            is_finetuned=is_trained_further,
        )
        current_loggers().result(each.text, {"score": found.result.score, **found.result.costs})
        results.append(SearchResult(slim, found.result, supernet.space, inputs, place if is_kept else None, gain))
    kept.finish()
    return SearchResults(results) if is_several else results[0]


def _found(supernet: Supernet, budget: Budget, job: Job, place: Path) -> StagesResult:
    """Search one budget; channels are numbered as in the user's model, whatever the order of the supernet's."""
    stage, space = stage_place(place, 1), supernet.space
    (result,) = search_trained(supernet, [budget], job, stage)
    channels = channels_before(space, result.channels, supernet.order)
    learned = in_order(space, supernet.model, np.argsort(supernet.order))
    return StagesResult(replace(result, channels=channels), space.extract(channels=channels, model=learned), stage)


def _finished(found: StagesResult, inputs: Any, job: Job, place: Path, is_trained_further: bool) -> nn.Module:
    """Return the slim model with statistics of its own, trained further if the user asked for it."""
    slim = found.slim
    device = next(slim.parameters()).device
    examples = hold_examples(job.train_data, "training data", num_examples=job.scoring.calibration_size, device=device)
    recalibrate_model(slim, examples)
    if not is_trained_further:
        return slim.eval()
    begins_with = {"channels": dict(found.result.channels), "stage": found.place.name}
    kept = place_for(place.parent, place.name, begins_with)
    return train_model(slim, inputs, job.train_data, job.training, loss=job.loss, directory=kept, quiet=job.quiet)
