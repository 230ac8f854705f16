"""The whole search in one call, for a user's own model and data."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

from torch import nn
from torch.utils.data import DataLoader, Dataset

from cafenet.common.directories import usable_directory
from cafenet.common.events import EventLogger, current_loggers, logging_to
from cafenet.common.job_progress import whole_job
from cafenet.common.loggers import loggers_of
from cafenet.common.options import NotNegative, Positive, Seed, check_arguments
from cafenet.common.plain_values import plain_numbers
from cafenet.common.run_places import search_place, stage_place
from cafenet.errors import BudgetError, TrainingError
from cafenet.modules.batches import LossFunction
from cafenet.modules.randomness import kept_randomness
from cafenet.modules.unwrapping import expect_values, unwrap
from cafenet.pipeline.auto_divisor import AutoDivisor
from cafenet.pipeline.baseline import wants_baseline
from cafenet.pipeline.checks import expect_parameters
from cafenet.pipeline.dict_batches import inputs_to_trace, outputs_that_count
from cafenet.pipeline.directory import SearchDirectory, expect_same_model, kept_in
from cafenet.pipeline.job import Job
from cafenet.pipeline.lengths import Effort, Given, Start, algorithm_of, optimizer_for, sampling_of, supernet_of
from cafenet.pipeline.options import SearchOptions
from cafenet.pipeline.paper import paper_options
from cafenet.pipeline.plan import length_of, total_of
from cafenet.pipeline.result import SearchResult, SearchResults
from cafenet.pipeline.trained_model import judge
from cafenet.pipeline.whole_search import WholeSearch
from cafenet.scoring.examples import Data, hold_examples
from cafenet.scoring.metrics import Metric
from cafenet.searching.budget import costs_in, expect_different
from cafenet.supernet.build import for_capped_costs
from cafenet.supernet.plain_training import initialised
from cafenet.supernet.train import share_full_network
from cafenet.tracing.tracer import trace
from cafenet.training.batch_feed import as_dataset
from cafenet.training.config import TrainConfig
from cafenet.training.distillation import DistillConfig, distillation_of
from cafenet.training.losses import OWN_LOSS


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
    finetune: TrainConfig | bool | None = None,
    loss: str | LossFunction = "cross_entropy",
    metric: str | Metric = "accuracy",
    options: SearchOptions | Literal["paper"] | None = None,
    example_inputs: Any = None,
    freeze: str | Sequence[str] = (),
    outputs: str | int | Sequence[str | int] | None = None,
    head_sizes: bool = False,
    start: Start = "supernet",
    distill: DistillConfig | bool = False,
    trained: bool | None = None,
    effort: Effort = "normal",
    test_data: Data | None = None,
    baseline: bool | None = None,
    seed: int = 0,
    directory: str | Path | None = None,
    loggers: Sequence[str | EventLogger] = (),
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
    finetune: TrainConfig | bool | None = None,
    loss: str | LossFunction = "cross_entropy",
    metric: str | Metric = "accuracy",
    options: SearchOptions | Literal["paper"] | None = None,
    example_inputs: Any = None,
    freeze: str | Sequence[str] = (),
    outputs: str | int | Sequence[str | int] | None = None,
    head_sizes: bool = False,
    start: Start = "supernet",
    distill: DistillConfig | bool = False,
    trained: bool | None = None,
    effort: Effort = "normal",
    test_data: Data | None = None,
    baseline: bool | None = None,
    seed: int = 0,
    directory: str | Path | None = None,
    loggers: Sequence[str | EventLogger] = (),
    quiet: bool = False,
) -> SearchResults: ...
@kept_randomness()
def search(
    model: nn.Module,
    train_data: Dataset[Any] | DataLoader[Any],
    val_data: Data,
    budget: str | list[str] | tuple[str, ...] = "50%",
    *,
    epochs: float | None = None,
    finetune_epochs: float | None = None,
    train: TrainConfig | None = None,
    finetune: TrainConfig | bool | None = None,
    loss: str | LossFunction = "cross_entropy",
    metric: str | Metric = "accuracy",
    options: SearchOptions | Literal["paper"] | None = None,
    example_inputs: Any = None,
    freeze: str | Sequence[str] = (),
    outputs: str | int | Sequence[str | int] | None = None,
    head_sizes: bool = False,
    start: Start = "supernet",
    distill: DistillConfig | bool = False,
    trained: bool | None = None,
    effort: Effort = "normal",
    test_data: Data | None = None,
    baseline: bool | None = None,
    seed: int = 0,
    directory: str | Path | None = None,
    loggers: Sequence[str | EventLogger] = (),
    quiet: bool = False,
) -> SearchResult | SearchResults:
    """Find the best widths of a model within a budget and return the slim model.

    The model itself is not changed, nor are the global random numbers.

    Args:
        model: The network whose widths are searched.
        train_data: Training data of the supernet and the slim model: a data set or a loader of pairs (inputs, target),
            or of dicts that the model is called with, whose entry `labels` is the target.
        val_data: Validation data that widths are scored on. Keep the test set out of both.
        budget: "50%" or "150M" (FLOPs), "1.5M params", "12ms", or several caps at once: "50%+1.5M params". A list, or
            commas ("50%,25%"), asks for several slim models.
        epochs: Number of epochs of the supernet's training, short for `train=TrainConfig(epochs=...)` with a batch size
            that suits the data: that of a loader, else 256, down to 32 where an epoch would have fewer than 50 steps.
        finetune_epochs: Number of epochs of the slim model's training, short for
            `finetune=TrainConfig(epochs=...)`; 0 trains it no further.
        train: Options of the supernet's training. It cannot be combined with `epochs` or `finetune_epochs`. If it is
            not given, networks with batch norm are trained by SGD, transformers (layer norm or RMS norm) by AdamW.
        finetune: Options of the slim model's training. It cannot be combined with `epochs` or `finetune_epochs`. If
            neither it nor `finetune_epochs` is given, the slim model is trained like the supernet, for three times as
            many epochs if the model came trained, else for as many. False trains it no further, so that it keeps the
            supernet's weights.
        loss: "cross_entropy", "bce", "model" for the `loss` in the model's own output, or a function of
            (output, target).
        metric: The measure of quality, where higher is better: "accuracy", "negative_loss", "perplexity",
            "token_accuracy" or a function of (output, target). The score of perplexity is minus its logarithm.
        options: All other options: the supernet, sampling, stages, the algorithm, scoring and latency. "paper" is
            exactly the paper's algorithm, from fresh weights, whatever the defaults are
            (`cafenet.pipeline.paper.paper_options`).
        example_inputs: Inputs that the model is traced with; by default those of one training example, without its
            labels if the model can do without.
        freeze: Names of layers that keep their widths, with wildcards (`*.se`), as in `cafenet.trace`.
        outputs: The parts of the model's output that matter, as in `cafenet.trace`; by default all, or the `logits` if
            the loss is the model's own.
        head_sizes: Whether the size of attention heads is searched beside their number, as in `cafenet.trace`.
        start: Weights that the slim model's training starts from: "supernet" takes those of the supernet, which reach
            a better result in the same number of epochs; "scratch" takes fresh ones, as in the paper.
        distill: Whether the slim model, and Uniform, also learn the outputs of the given model, which must come
            trained. A `DistillConfig` sets the weight and the temperature.
        trained: Whether the model comes trained. None finds out, by its score on the validation data against chance,
            and says so. A trained model is the start of the supernet: its channels are sorted by importance, the full
            network is not trained again, and rates are gentler. The values of `train`, `finetune` and `options` always
            hold.
        effort: Lengths of what is not given: "quick" (3 epochs of the supernet, 100 widths), "normal" (10 and 300) or
            "thorough" (40 and 600). Small data have more epochs, so that the supernet has 100, 400 or 1,600 steps. If
            the model came trained, the supernet takes half of that and the slim model the rest.
        test_data: Data that nothing is chosen on. The finished models are scored on them, too.
        baseline: Whether a Uniform model, with one factor on all channels, is trained like the slim model, to compare
            with. None trains it wherever the slim model is trained.
        seed: Seed of the trainings, of fresh weights and of the search.
        directory: Directory for checkpoints, scores and results. A second call with the same directory continues the
            first. Several budgets share it.
        loggers: Loggers that get the events of the search: "jsonl:FILE", "tensorboard:DIR", "mlflow:DIR", "wandb:DIR",
            or objects with the methods of `cafenet.common.events.EventLogger`.
        quiet: True shows no plan and no progress.

    Returns:
        The slim model with its widths, its costs and what was gained. It is in train or eval mode as the model is.
        Several budgets give a sequence of such results, which can also be looked up by budget.

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
        finetune_epochs=(finetune_epochs, NotNegative | None),
        train=(train, TrainConfig | None),
        finetune=(finetune, TrainConfig | bool | None),
        options=(options, SearchOptions | Literal["paper"] | None),
        head_sizes=(head_sizes, bool),
        start=(start, Start),
        distill=(distill, DistillConfig | bool),
        trained=(trained, bool | None),
        effort=(effort, Effort),
        baseline=(baseline, bool | None),
        seed=(seed, Seed),
        quiet=(quiet, bool),
    )
    model, train_data = unwrap(model), as_dataset(train_data)
    expect_values(model, TrainingError)
    expect_parameters(model)
    if options == "paper":
        start, trained, model = "scratch", False, initialised(model, int(seed))
    given = Given(
        epochs,
        finetune_epochs,
        train,
        finetune,
        effort,
        start,
        int(seed),
        optimizer_for(model),
        length_of(train_data),
        getattr(train_data, "batch_size", None),
    )
    given.check()
    chosen: SearchOptions = paper_options() if options == "paper" else plain_numbers(options) or SearchOptions()
    costs = costs_in(",".join(map(str, _texts(budget))))
    directory = None if directory is None else usable_directory(directory, TrainingError)
    device = next(model.parameters()).device
    if example_inputs is None:
        example_inputs = hold_examples(train_data, "training data", num_examples=1, device=device).batch[0]
        example_inputs = inputs_to_trace(model, example_inputs)
    if outputs is None and loss == OWN_LOSS:
        outputs = outputs_that_count(model, example_inputs)
    training, final = given.trainings(is_trained=False)
    job = Job(
        train_data=train_data,
        val_data=list(val_data) if isinstance(val_data, Iterator) else val_data,  # every stage reads them
        loss=loss,
        metric=metric,
        supernet=for_capped_costs(supernet_of(chosen, is_trained=False), costs),
        training=training,
        sampling=sampling_of(chosen, is_trained=False),
        algorithm=algorithm_of(chosen, effort),
        search=chosen.search_config(int(seed)),
        scoring=chosen.scoring,
        latency=chosen.latency,
        freeze=(freeze,) if isinstance(freeze, str) else freeze,  # type: ignore[arg-type]
        outputs=outputs,
        head_sizes=head_sizes,
        quiet=quiet,
    )
    space = trace(model, example_inputs, freeze=job.freeze, outputs=outputs, head_sizes=head_sizes)
    is_auto = job.supernet.divisor == "auto"
    test = list(test_data) if isinstance(test_data, Iterator) else test_data
    whole = WholeSearch(
        model,
        example_inputs,
        space,
        job,
        final,
        start,
        test,
        wants_baseline(baseline, final),
        distill=distillation_of(distill),
    )
    is_several = not isinstance(budget, str) or "," in budget
    with logging_to(loggers_of(loggers)), kept_in(directory) as place:
        kept = SearchDirectory(place, seed=int(seed), budget=budget, is_kept=directory is not None)
        auto = AutoDivisor(space, example_inputs, job.latency, place)
        whole = replace(whole, job=replace(job, supernet=auto.settled(job.supernet)))
        asked = [whole.ask(text, search_place(place, text), chosen.stages) for text in _texts(budget)]
        expect_different([each.budget for each in asked])
        whole.check(asked)
        whole = whole.for_verdict(judge(model, whole.job, place, trained), given, chosen)
        expect_same_model(model, place, is_trained=whole.verdict.is_trained)
        if is_auto:
            auto.keep(whole.job.supernet)
        describe = partial(
            kept.describe,
            model,
            space,
            whole.job,
            [each.budget.text for each in asked],
            [each.stages for each in asked],
        )
        if not kept.is_begun:  # else once the checkpoints have not refused the options
            describe()
        results, shown = [], None if directory is None else place
        plans = [] if quiet else whole.plans(asked, shown)
        lines = [auto.sentence, whole.verdict.sentence, *map(str, plans), total_of(plans)] if plans else []
        said = "\n".join(line for line in lines if line)
        accepted: Callable[[], None] = describe
        if kept.is_finished and all(plan.is_begun for plan in plans):  # then the options may still be refused
            accepted = partial(_accepted, describe, said)
        else:
            _say(said)
        with whole_job([part.seconds for plan in plans for part in plan.parts]):
            for number, each in enumerate(asked):
                for other in asked[:number]:
                    if other.stages == each.stages:  # then their full networks are the same
                        share_full_network(stage_place(other.place, 1), stage_place(each.place, 1))
                results.append(whole.search(each, kept, accepted, shown))
                accepted = describe
                current_loggers().result(each.budget.text, {"score": results[-1].score, **results[-1].costs})
        kept.finish()
    return SearchResults(results) if is_several else results[0]


def _say(text: str) -> None:
    """Print something for the user, if it is not empty."""
    if text:
        print(text, file=sys.stderr, flush=True)


def _accepted(describe: Callable[[], None], said: str) -> None:
    """Describe a search and print its plan, once the files of an earlier search have not refused its options."""
    describe()
    _say(said)


def _texts(budget: Any) -> list[Any]:
    """Return the budgets one by one. `parse_budget` refuses values that are not text."""
    several = budget if isinstance(budget, (list, tuple)) else [budget]
    texts = [part for each in several for part in (each.split(",") if isinstance(each, str) else [each])]
    if not texts:
        raise BudgetError('a budget must be a text such as "50%", or several of them, but there is none')
    return texts
