"""Metrics by which widths are scored: higher is better, with one value per example if possible.

An output may be a tensor, or hold one as its `logits`, as the outputs of transformers do.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from cafenet.errors import ScoringError
from cafenet.modules.outputs import logits_of
from cafenet.scoring.token_metrics import IGNORED, TokenMetric, predicts_next
from cafenet.training.losses import OWN_LOSS

Metric: TypeAlias = Callable[[Any, Any], Tensor]
"""Function metric(output, target) that returns one value per example, shape (batch,), or one number for all
examples."""


def metric_by_name(name: str, loss: object = None, model: object = None) -> Metric:
    """Return the metric of a name.

    Args:
        name: "accuracy" (of class numbers, or the mean over the attributes of multi-label targets), "negative_loss",
            or for outputs of tokens "perplexity" and "token_accuracy".
        loss: The loss that is trained with. With "cross_entropy", a target with one number per class holds class
            probabilities.
        model: The model, which says whether a token is compared with its own label or with the next one.

    Returns:
        The metric.

    Raises:
        ScoringError: If the name is unknown.
    """
    is_of_classes = loss == "cross_entropy"
    if name == "accuracy":
        return class_accuracy if is_of_classes else accuracy
    if name == "negative_loss":
        if loss == OWN_LOSS:
            return TokenMetric(name, predicts_next(model), otherwise=negative_loss)
        return negative_class_loss if is_of_classes else negative_loss
    if name in ("perplexity", "token_accuracy"):
        return TokenMetric(name, predicts_next(model))
    raise ScoringError(
        "metric must be 'accuracy', 'negative_loss', 'perplexity', 'token_accuracy' or a function of (output, target), "
        f"but got {name!r}"
    )


def shown_score(name: str, score: float) -> str:
    """Return a score as text with the name of its metric.

    Args:
        name: Name of the metric.
        score: The score.

    Returns:
        A text such as "accuracy 0.9312". For perplexity, whose score is minus its logarithm, the perplexity itself.
    """
    return f"{name} {in_own_unit(name, score):.4f}"


def in_own_unit(name: str, score: float) -> float:
    """Return a score in the unit that people know it in.

    Args:
        name: Name of the metric.
        score: The score, where higher is better.

    Returns:
        The perplexity itself, where lower is better, of a score of perplexity, which is minus its logarithm; any other
        score unchanged. A perplexity that no float can hold is infinite.
    """
    if name != "perplexity":
        return score
    return math.exp(-score) if score > -700 else math.inf


def expect_function(metric: Any) -> Metric:
    """Check that a metric which is not a name is callable.

    Args:
        metric: The metric that the user passed.

    Returns:
        The metric itself.

    Raises:
        ScoringError: If it is not callable, or a class.
    """
    if isinstance(metric, type):
        raise ScoringError(f"metric must be a name or a function, but is the class {metric.__name__}; write it with ()")
    if not callable(metric):
        raise ScoringError(f"metric must be a name or a function of (output, target), but is {metric!r:.60}")
    function: Metric = metric
    return function


def metric_name(metric: str | Metric) -> str:
    """Return the name of a metric in results.

    Args:
        metric: The metric, by name or as a function.

    Returns:
        The name.
    """
    return metric if isinstance(metric, str) else str(getattr(metric, "__name__", type(metric).__name__))


def metric_values(metric: Metric, output: Any, target: Any) -> Tensor:
    """Return what a metric gives as a tensor.

    Args:
        metric: The metric.
        output: Output of the model for some examples.
        target: Their targets.

    Returns:
        The values.

    Raises:
        ScoringError: If the metric returns anything but numbers.
    """
    values = metric(output, target)
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ScoringError(
            f"a metric must return one value an example or one number, but {metric_name(metric)} returned "
            f"{values!r:.60}"
        ) from error


def is_per_example(metric: Metric, output: Any, target: Any, num_examples: int) -> bool:
    """Return whether a metric gives one value per example.

    Args:
        metric: The metric.
        output: Output of the model for some examples.
        target: Their targets.
        num_examples: Number of the examples.

    Returns:
        True for one value per example, False for one number for all.

    Raises:
        ScoringError: If the metric returns anything else.
    """
    result = metric_values(metric, output, target)
    if result.ndim == 0:
        if not isinstance(output, Tensor):
            raise ScoringError(
                f"a metric of one number needs outputs that are one tensor, but they are {type(output).__name__}; "
                "return a value for each example instead"
            )
        return False
    if result.shape != (num_examples,):
        raise ScoringError(
            f"a metric must return one value an example (shape [{num_examples}] here) or one number, but "
            f"{metric_name(metric)} returned shape {list(result.shape)}"
        )
    return True


def check_labels(output: Any, target: Any, name: str) -> None:
    """Check that class numbers are among the model's outputs; others would silently count as errors of the model.

    Args:
        output: Output of the model; anything but class scores is not checked.
        target: The labels.
        name: Name of the data in the error message.

    Raises:
        ScoringError: If a label has no output.
    """
    output = logits_of(output)
    if not isinstance(output, Tensor) or not isinstance(target, Tensor) or target.ndim not in (1, 2):
        return
    if output.ndim != target.ndim + 1 or (target.ndim == 2 and target.dtype != torch.int64):
        return
    counted = target[target != IGNORED] if target.ndim == 2 else target
    low, high = (int(counted.min()), int(counted.max())) if counted.numel() else (0, 0)
    if low < 0 or high >= output.shape[-1]:
        raise ScoringError(
            f"labels of the {name} must lie in 0 to {output.shape[-1] - 1}, the model's number of outputs, but lie in "
            f"{low} to {high}; leave such examples out, or pass a function metric(output, target)"
        )


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """Return 1.0 for each example whose largest output is that of its label, and 0.0 for the others.

    For targets of zeros and ones, the value is the share of right attributes.

    Args:
        output: Class scores, shape (batch, classes).
        target: Labels of shape (batch,), or zeros and ones of shape (batch, attributes).

    Returns:
        One value per example.
    """
    output = logits_of(output)
    if _has_all_classes(output, target):
        return ((output > 0) == (target > 0.5)).double().mean(dim=1)
    return (output.argmax(dim=1) == target).double()


def negative_loss(output: Tensor, target: Tensor) -> Tensor:
    """Return minus the cross entropy; for targets of zeros and ones, minus the mean binary cross entropy.

    Args:
        output: Class scores, shape (batch, classes).
        target: Labels of shape (batch,), or zeros and ones of shape (batch, attributes).

    Returns:
        One value per example.
    """
    output = logits_of(output)
    if _has_all_classes(output, target):
        losses = functional.binary_cross_entropy_with_logits(output, target.to(output.dtype), reduction="none")
        return -losses.double().mean(dim=1)
    return -functional.cross_entropy(output, target, reduction="none").double()


def class_accuracy(output: Tensor, target: Tensor) -> Tensor:
    """Return 1.0 for each example whose largest output is that of its label or of its most probable class.

    Args:
        output: Class scores, shape (batch, classes).
        target: Labels of shape (batch,), or class probabilities of shape (batch, classes).

    Returns:
        One value per example.
    """
    output = logits_of(output)
    return accuracy(output, target.argmax(dim=1) if _has_all_classes(output, target) else target)


def negative_class_loss(output: Tensor, target: Tensor) -> Tensor:
    """Return minus the cross entropy with labels or with class probabilities.

    Args:
        output: Class scores, shape (batch, classes).
        target: Labels of shape (batch,), or class probabilities of shape (batch, classes).

    Returns:
        One value per example.
    """
    output = logits_of(output)
    if _has_all_classes(output, target):
        target = target.to(output.dtype)
    return -functional.cross_entropy(output, target, reduction="none").double()


def chance_accuracy(target: Tensor, loss: object = None) -> float:
    """Return the accuracy of always answering the most frequent label; it is 0.1 for ten balanced classes.

    Args:
        target: Labels, class probabilities, or attributes.
        loss: The loss that is trained with; it decides what targets of two dimensions mean.

    Returns:
        The accuracy.
    """
    if target.ndim == 2 and loss == "cross_entropy":
        target = target.argmax(dim=1)
    if target.ndim == 2:
        positive = target.double().mean(dim=0)
        return float(torch.maximum(positive, 1 - positive).mean())
    return float(torch.bincount(target.flatten().long()).max() / target.numel())


def _other_metric(output: Tensor) -> str:
    """Return the remedy for outputs that a metric of classes cannot use."""
    own = "pass a function metric(output, target)"
    return (
        f"pass metric='token_accuracy' or 'perplexity' for tokens, or {own}" if output.ndim == 3 else f"{own} instead"
    )


def _has_all_classes(output: Any, target: Any) -> bool:
    """Return whether a target has one number per class; refuse shapes that metrics by name cannot use."""
    if isinstance(target, Mapping):
        raise ScoringError(
            f"metrics by name need labels, but the batches have no entry 'labels', only {', '.join(map(str, target))}"
        )
    if not isinstance(output, Tensor) or not isinstance(target, Tensor):
        raise ScoringError(
            f"metrics by name need one output tensor and one target tensor, but got {type(output).__name__} and "
            f"{type(target).__name__}; pass a function metric(output, target) instead"
        )
    if output.ndim != 2 or target.shape not in (output.shape, output.shape[:1]):
        raise ScoringError(
            "metrics by name need outputs of shape (batch, classes) and targets of shape (batch,) or the same, but got "
            f"{list(output.shape)} and {list(target.shape)}; {_other_metric(output)}"
        )
    return target.ndim == 2
