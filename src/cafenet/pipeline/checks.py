"""Checks before a search: problems that would stop it later are reported before a supernet is trained."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from cafenet.common.user_code import UserPart
from cafenet.errors import BudgetError, ScoringError, TrainingError, first_line
from cafenet.modules.calling import training_mode
from cafenet.modules.inputs import call_arguments, unknown_arguments
from cafenet.modules.snapshot import unchanged
from cafenet.pipeline.job import Job
from cafenet.pipeline.one_stage import check_feasible
from cafenet.pipeline.stage_plan import Stage
from cafenet.scoring.examples import Data, hold_examples
from cafenet.scoring.metrics import Metric, check_labels, expect_function, is_per_example, metric_by_name
from cafenet.searching.budget import Budget
from cafenet.searching.file_size import file_bytes
from cafenet.searching.latency.measure import measure_latency
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.build import build_bins
from cafenet.training.losses import OWN_LOSS, own_loss

_FEW = 8
"""Number of examples that are enough to show whether a metric fits."""


def expect_parameters(model: nn.Module) -> None:
    """Refuse a model that has nothing to train.

    Args:
        model: The model.

    Raises:
        TrainingError: If the model has no parameters.
    """
    if next(model.parameters(), None) is None:
        raise TrainingError(f"the model must have parameters, but this {type(model).__name__} has none")


def check_search(job: Job, space: WidthSpace, plan: Sequence[Stage], is_fresh: bool, test: Data | None = None) -> None:
    """Check that every stage can work with its budget, the metric and the data.

    Args:
        job: The data and options of the search.
        space: The width space of the model.
        plan: The stages, of one budget or of several.
        is_fresh: True if nothing was trained before. All labels that scoring uses are then checked, which may take as
            long as reading them.
        test: Test data that the finished models are scored on, or None.

    Raises:
        BudgetError: If no width meets the budget of a stage.
        TrainingError: If the loss is the model's own, but its output has none.
        ScoringError: If the metric is not usable, a label has no output, or the model does not take the inputs.
    """
    for stage in plan:
        check_feasible(space, job, stage)
    check_data(job, space.model, is_fresh, test)


def check_data(job: Job, model: nn.Module, is_fresh: bool, test: Data | None = None) -> None:
    """Check that the model, the loss and the metric can work with the data.

    Args:
        job: The data and options of the search.
        model: The model.
        is_fresh: True if all labels that scoring uses are checked, which may take as long as reading them.
        test: Test data that the finished models are scored on, or None.

    Raises:
        TrainingError: If the loss is the model's own, but its output has none.
        ScoringError: If the metric is not usable, a label has no output, or the model does not take the inputs.
    """
    metric: Metric = (
        metric_by_name(job.metric, job.loss, model)
        if isinstance(job.metric, str)
        else UserPart(expect_function(job.metric), "the metric", "the check before the search")
    )
    output, target, _ = _few_outputs(model, job.train_data, "training data")
    if job.loss == OWN_LOSS:
        own_loss(output, target)
    for data, name in ((job.val_data, "validation data"), (test, "test data")):
        if data is not None:
            _check_scored(job, metric, model, data, name, is_fresh)


def _check_scored(job: Job, metric: Metric, model: nn.Module, data: Data, name: str, is_fresh: bool) -> None:
    """Check that the metric fits to data that models are scored on."""
    output, target, size = _few_outputs(model, data, name)
    is_per_example(metric, output, target, size)
    if is_fresh and isinstance(job.metric, str):
        _, target = hold_examples(data, name, num_examples=job.scoring.max_examples).batch
        check_labels(output, target, name)


def _few_outputs(model: nn.Module, data: Data, name: str) -> tuple[Any, Any, int]:
    """Return the model's output for a few examples, read as scoring reads them, with their targets and number."""
    held = hold_examples(data, name, num_examples=_FEW, device=next(model.parameters()).device)
    args, kwargs = call_arguments(held.batch[0])
    unknown = unknown_arguments(model, held.batch[0])
    if unknown:
        raise ScoringError(
            f"a dict of the {name} must hold arguments of the model's forward, but it does not take "
            f"{', '.join(map(repr, unknown))}; rename the entries, or give pairs (inputs, target)"
        )
    try:
        with unchanged(model), training_mode(model, False), torch.no_grad():
            return model(*args, **kwargs), held.batch[1], held.size
    except (RuntimeError, ValueError, TypeError) as error:
        shapes = [list(leaf.shape) for leaf in tree_leaves(held.batch[0]) if isinstance(leaf, torch.Tensor)]
        raise ScoringError(
            f"the model must take the inputs of the {name}, which are {shapes} for {held.size} examples, but: "
            f"{first_line(error)}; a list must hold batches, or examples whose target is one number"
        ) from error


def check_file_size(job: Job, space: WidthSpace, budget: Budget, example_inputs: Any) -> None:
    """Check that the file of the smallest subnet meets a cap on file size. No file is written without such a cap.

    Args:
        job: The data and options of the search.
        space: The width space of the model.
        budget: The budget with its caps.
        example_inputs: The inputs whose shapes the file fixes.

    Raises:
        BudgetError: If the smallest file is larger than the cap.
    """
    for cap in (cap for cap in budget.caps if cap.cost == "file_bytes"):
        size = file_bytes(_smallest(job, space), example_inputs, job.latency)
        if size > cap.limit:
            raise BudgetError(
                f"`budget >= smallest subnet` must hold, but {budget.text!r} allows {cap} and the file of the smallest "
                f"subnet has {size:,} bytes; raise the budget, lower min_width or quantize"
            )


def _smallest(job: Job, space: WidthSpace) -> nn.Module:
    """Return the slim model with one bin per group."""
    bins = build_bins(space, job.supernet)
    return space.extract(bins.widths(bins.num_bins * 0 + 1).tolist())


def check_latency(job: Job, space: WidthSpace, budget: Budget, example_inputs: Any) -> None:
    """Check that the smallest subnet meets every cap on latency. Nothing is measured without such a cap.

    Args:
        job: The data and options of the search.
        space: The width space of the model.
        budget: The budget with its caps.
        example_inputs: The inputs that the latency is measured with.

    Raises:
        BudgetError: If the smallest subnet takes longer than a cap allows.
    """
    for cap in budget.caps:
        if cap.cost == "latency_ms":
            measured = measure_latency(_smallest(job, space), example_inputs, job.latency)
            if measured > cap.limit:
                raise BudgetError(
                    f"`budget >= smallest subnet` must hold, but {budget.text!r} allows {cap} and the smallest subnet "
                    f"takes {measured:.3g} ms; raise the budget or lower min_width"
                )
