"""Evaluation of a finished model on data that it has never seen."""

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from cafenet.common.options import check_arguments
from cafenet.common.user_code import items_of
from cafenet.errors import ScoringError
from cafenet.modules.batches import LossFunction
from cafenet.modules.calling import call_arguments, running_on, training_mode
from cafenet.scoring.examples import Data, as_pair
from cafenet.scoring.metrics import check_labels
from cafenet.training.batch_feed import collate_examples, is_map_style


def evaluate(model: nn.Module, data: Data, *, loss: str | LossFunction | None = None) -> dict[str, Any]:
    """Evaluate a model on all examples of a data set.

    Args:
        model: The model; its mode is unchanged afterwards.
        data: A data set, a loader, or an iterable of batches (inputs, target).
        loss: The loss that the model was trained with. With "cross_entropy", targets of two dimensions are class
            probabilities; otherwise they are attributes.

    Returns:
        `accuracy` and `num_examples`; with more than 5 classes also `top5`; with multi-label targets also
        `per_attribute`, of which `accuracy` is the mean. All accuracies are shares from 0 to 1.

    Raises:
        ScoringError: If the data are empty or do not fit the model, or a label is not among the model's outputs.

    Example:
        >>> import cafenet, torch
        >>> data = torch.utils.data.TensorDataset(torch.eye(3), torch.arange(3))
        >>> cafenet.evaluate(torch.nn.Identity(), data)
        {'accuracy': 1.0, 'num_examples': 3}
    """
    outputs, targets = predictions(model, data)
    if targets.ndim == 2 and loss == "cross_entropy":
        targets = targets.argmax(dim=1)
    if targets.ndim == 2:
        right = ((outputs > 0) == (targets > 0.5)).double()
        return {
            "accuracy": float(right.mean()),
            "per_attribute": right.mean(dim=0).tolist(),
            "num_examples": len(targets),
        }
    check_labels(outputs, targets, "evaluation data")
    result: dict[str, Any] = {"accuracy": float((outputs.argmax(dim=1) == targets).double().mean())}
    if outputs.shape[1] > 5:
        best = outputs.topk(5, dim=1).indices
        result["top5"] = float((best == targets[:, None]).any(dim=1).double().mean())
    return {**result, "num_examples": len(targets)}


def predictions(model: nn.Module, data: Data) -> tuple[Tensor, Tensor]:
    """Run a model on all examples in eval mode; its mode is unchanged afterwards.

    Args:
        model: The model.
        data: A data set, a loader, or an iterable of batches (inputs, target).

    Returns:
        All outputs and all targets, in order, on the CPU.

    Raises:
        ScoringError: If the data are empty, are no data, or do not fit the model.
    """
    check_arguments(ScoringError, model=(model, nn.Module))
    is_batches = isinstance(data, Iterable) and not is_map_style(data)
    if not is_batches and not is_map_style(data):
        raise ScoringError(f"data must be a data set, a DataLoader or a list of batches, but got {type(data).__name__}")
    batches = data if is_batches else DataLoader(cast("Dataset[Any]", data), 256, collate_fn=collate_examples)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    outputs, targets = [], []
    with torch.no_grad(), training_mode(model, False):
        for batch in items_of(cast("Iterable[Any]", batches), "the evaluation data", "an evaluation"):
            inputs, target = as_pair(batch, "evaluation data")
            args, kwargs = call_arguments(torch.utils._pytree.tree_map(lambda leaf: _moved(leaf, device), inputs))
            with running_on("the evaluation data", ScoringError):
                outputs.append(model(*args, **kwargs).cpu())
            targets.append(target.cpu())
    if not outputs:
        raise ScoringError("evaluation data must hold at least one example, but is empty")
    return torch.cat(outputs), torch.cat(targets)


def _moved(leaf: Any, device: torch.device) -> Any:
    """Move a tensor to the device; return anything else unchanged."""
    return leaf.to(device) if isinstance(leaf, Tensor) else leaf
