"""The score of one finished model by the metric of a search, on all examples of some data."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from cafenet.common.user_code import UserPart
from cafenet.errors import ScoringError
from cafenet.modules.batches import LossFunction
from cafenet.modules.calling import training_mode
from cafenet.modules.inputs import call_arguments, running_on
from cafenet.modules.snapshot import unchanged
from cafenet.scoring.examples import Data, pairs_of
from cafenet.scoring.metrics import Metric, expect_function, metric_by_name, metric_values
from cafenet.scoring.token_metrics import IGNORED, TokenMetric

_TEXTS = 32
"""Number of texts that are scored at once, whose tokens have a score for every word each."""


@dataclass(frozen=True)
class ModelScore:
    """The score of a model on some data."""

    value: float
    """The metric: the mean over the examples, or the one number of a metric that gives one."""
    num_examples: int
    """Number of the examples."""


def model_score(
    model: nn.Module, data: Data, *, metric: str | Metric, loss: str | LossFunction | None, name: str
) -> ModelScore:
    """Score a model in eval mode on all examples; it is unchanged afterwards.

    Args:
        model: The model.
        data: A data set, a loader, or an iterable of batches (inputs, target).
        metric: "accuracy", "negative_loss", "perplexity", "token_accuracy" or a function of (output, target). Those of
            tokens are means over all tokens, as `cafenet.evaluate` gives them.
        loss: The loss that is trained with; it decides what targets of two dimensions mean.
        name: Name of the data in error messages.

    Returns:
        The score.

    Raises:
        ScoringError: If the data are empty or do not fit the model, or the metric is not usable.
    """
    measured, values, kept = metric_of(metric, loss, "the scoring of a model", model), [], []
    if isinstance(measured, TokenMetric) and measured.otherwise is None:
        return _of_tokens(measured, model, data, name)
    size = 0
    for inputs, target in pairs_of(data, name):
        output, target = output_of(model, inputs, name), _on_cpu(target)
        value = metric_values(measured, output, target).double().cpu()
        num_examples = _length(target) if value.ndim == 0 else len(value)
        size += num_examples
        values.append(value.reshape(-1))
        if value.ndim == 0:  # one number for all examples is no mean over batches
            kept.append((output, target))
    if size == 0:
        raise ScoringError(f"{name} must hold at least one example, but is empty")
    if kept:
        return ModelScore(float(metric_values(measured, *joined(kept))), size)
    return ModelScore(float(torch.cat(values).mean()), size)


def _of_tokens(metric: TokenMetric, model: nn.Module, data: Data, name: str) -> ModelScore:
    """Return the mean over all tokens, summed up batch by batch; long texts count for more than short ones."""
    total, num_tokens, num_examples = 0.0, 0, 0
    for inputs, target in pairs_of(data, name, _TEXTS):
        values, counts = metric.sums(output_of(model, inputs, name), _on_cpu(target))
        total, num_tokens = total + float(values.sum()), num_tokens + int(counts.sum())
        num_examples += len(counts)
    if num_tokens == 0:
        raise ScoringError(f"{name} must have labels other than {IGNORED}, but has none")
    return ModelScore(total / num_tokens, num_examples)


def metric_of(
    metric: str | Metric, loss: str | LossFunction | None, place: str, model: nn.Module | None = None
) -> Metric:
    """Return a metric as a function.

    Args:
        metric: The metric, by name or as a function.
        loss: The loss that is trained with.
        place: The task at hand, for messages about errors in the user's function.
        model: The model, which says whether a token is compared with its own label or with the next one.

    Returns:
        The function.

    Raises:
        ScoringError: If it is neither a known name nor a function.
    """
    if isinstance(metric, str):
        return metric_by_name(metric, loss, model)
    return UserPart(expect_function(metric), "the metric", place)


def output_of(model: nn.Module, inputs: Any, name: str) -> Any:
    """Run a model in eval mode and without gradients; it is unchanged afterwards.

    Args:
        model: The model.
        inputs: A batch of inputs.
        name: Name of the data in error messages.

    Returns:
        The output, on the CPU.
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    moved = tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, inputs)
    args, kwargs = call_arguments(moved)
    with unchanged(model), training_mode(model, False), torch.no_grad(), running_on(f"the {name}", ScoringError):
        return _on_cpu(model(*args, **kwargs))


def joined(parts: list[Any]) -> Any:
    """Join the tensors of several batches.

    Args:
        parts: Values of one structure.

    Returns:
        One value of the same structure with all examples.
    """
    leaves = zip(*(tree_flatten(part)[0] for part in parts), strict=True)
    first, spec = tree_flatten(parts[0])
    whole = [torch.cat(each) if isinstance(each[0], Tensor) and each[0].ndim else each[0] for each in leaves]
    assert len(whole) == len(first)
    return tree_unflatten(whole, spec)


def _on_cpu(value: Any) -> Any:
    """Return the tensors of a value on the CPU."""
    return tree_map(lambda leaf: leaf.cpu() if isinstance(leaf, Tensor) else leaf, value)


def _length(target: Any) -> int:
    """Return the number of examples of a target."""
    leaves = [leaf for leaf in tree_flatten(target)[0] if isinstance(leaf, Tensor) and leaf.ndim]
    return len(leaves[0]) if leaves else 1
