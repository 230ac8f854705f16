"""Losses by name: functions of an output and a target that return the mean over the batch.

An output may be a tensor, or hold one as its `logits`, as the outputs of transformers do.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cafenet.errors import TrainingError
from cafenet.modules.batches import LossFunction
from cafenet.modules.outputs import logits_of, own_loss_of
from cafenet.training.config import TrainConfig

OWN_LOSS = "model"
"""Name of the loss that a model computes itself."""


def loss_by_name(name: str, *, label_smoothing: float = 0.0) -> Callable[[Any, Any], Tensor]:
    """Finds a loss by its name.

    Args:
        name: `cross_entropy` for class numbers, `bce` for multi-label targets of zeros and ones, or `model` for the
            `loss` in the model's own output.
        label_smoothing: Label smoothing, from 0 to below 1.

    Returns:
        A function loss(output, target).

    Raises:
        TrainingError: If the name is unknown, or the label smoothing is out of range.
    """
    if not 0.0 <= label_smoothing < 1.0:
        raise TrainingError(f"label_smoothing must lie in [0, 1), but got {label_smoothing}")
    if name == "cross_entropy":
        return partial(_classes, label_smoothing=label_smoothing)
    if name == "bce":
        return partial(_multi_label, label_smoothing=label_smoothing)
    if name == OWN_LOSS:
        if label_smoothing:
            raise TrainingError("label_smoothing must be 0 for the loss 'model', which the model computes itself")
        return own_loss
    raise TrainingError(
        f"loss must be 'cross_entropy', 'bce', 'model' or a function of (output, target), but got {name!r}"
    )


def own_loss(output: Any, target: Any) -> Tensor:
    """Takes the loss that the model computed itself.

    Args:
        output: Output of the model.
        target: Targets of the batch, which the model was given among its inputs.

    Returns:
        The loss.

    Raises:
        TrainingError: If the output holds no loss.
    """
    loss = own_loss_of(output)
    if loss is None:
        raise TrainingError(
            f"the loss 'model' needs a model whose output has a loss, but its {type(output).__name__} has none; "
            + _how_to_get_a_loss(target)
        )
    return loss


def _how_to_get_a_loss(target: Any) -> str:
    """Return what is missing for a model to compute its loss."""
    if isinstance(target, Mapping):
        return f"give every batch an entry 'labels', beside {', '.join(map(str, target))}"
    return "give it batches that are dicts with an entry 'labels', or pass another loss"


def _classes(output: Any, target: Tensor, label_smoothing: float) -> Tensor:
    return functional.cross_entropy(logits_of(output), target, label_smoothing=label_smoothing)


def _multi_label(output: Any, target: Tensor, label_smoothing: float) -> Tensor:
    output = logits_of(output)
    target = target.to(output.dtype) * (1 - label_smoothing) + 0.5 * label_smoothing
    return functional.binary_cross_entropy_with_logits(output, target)


def check_target(name: str, output: Any, target: Any) -> None:
    """Checks before the first step that labels fit the model's outputs.

    Args:
        name: Name of the loss. Targets of other losses are not checked.
        output: Output of the model for a batch.
        target: Targets of the batch.

    Raises:
        TrainingError: If shapes, types or values do not fit. The message has both sizes.
    """
    if name == OWN_LOSS:
        own_loss(output, target)
        return
    output = logits_of(output)
    if not isinstance(output, Tensor) or not isinstance(target, Tensor):
        raise TrainingError(
            f"the loss {name!r} needs one output tensor and one target tensor, but got {type(output).__name__} and "
            f"{type(target).__name__}; pass a function loss(output, target), or 'model' if the output has a loss"
        )
    if name == "bce":
        if output.shape != target.shape:
            raise TrainingError(
                f"targets must have the outputs' shape {list(output.shape)}, but have {list(target.shape)}"
            )
        if float(target.min()) < 0 or float(target.max()) > 1:
            raise TrainingError(
                f"targets must be zeros and ones, but lie in {float(target.min()):g} to {float(target.max()):g}"
            )
    is_probabilities = target.is_floating_point() and target.shape == output.shape
    if name == "cross_entropy" and not is_probabilities:
        if target.ndim != output.ndim - 1 or target.dtype != torch.int64:
            raise TrainingError(
                f"targets must be int64 class numbers of shape {[output.shape[0], *output.shape[2:]]}, but are "
                f"{target.dtype} of shape {list(target.shape)}"
            )
        low, high = int(target.min()), int(target.max())
        if low < 0 or high >= output.shape[1]:
            raise TrainingError(
                f"labels must lie in 0 to {output.shape[1] - 1}, the model's number of outputs, but lie in {low} to "
                f"{high}"
            )


def named_loss(loss: str | LossFunction, config: TrainConfig) -> LossFunction:
    """Return the loss function for a name, or the given function itself.

    Args:
        loss: The loss, by name or as a function of (output, target).
        config: Options of the training, for label smoothing.

    Returns:
        A function of (output, target) that returns the mean loss.

    Raises:
        TrainingError: If the loss is unknown, or label smoothing is set for a function.
    """
    if isinstance(loss, str):
        return loss_by_name(loss, label_smoothing=config.label_smoothing)
    if isinstance(loss, type):
        raise TrainingError(f"loss must be a name or a function, but is the class {loss.__name__}; write it with ()")
    if not callable(loss):
        raise TrainingError(f"loss must be a name or a function of (output, target), but is {loss!r:.60}")
    if config.label_smoothing:
        raise TrainingError("label_smoothing is for losses by name; smooth the labels in your loss function")
    return loss
