"""How good a finished model is on data that it has never seen."""

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from cafenet.common.user_code import items_of
from cafenet.errors import ScoringError
from cafenet.modules.batches import LossFunction
from cafenet.modules.calling import call_arguments, training_mode
from cafenet.scoring.examples import Data
from cafenet.scoring.metrics import check_labels
from cafenet.training.batch_feed import collate_examples, is_map_style


def evaluate(model: nn.Module, data: Data, *, loss: str | LossFunction | None = None) -> dict[str, Any]:
    """Accuracy on all examples, as shares: `accuracy` and `top5` of class scores (with more than 5 classes), or the
    mean over attributes and `per_attribute` of multi-label targets; and `num_examples`.

    loss: what the model learned; with "cross_entropy", targets of two dimensions are class probabilities.
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
    """All outputs and targets, in order, on the CPU; the model is left in the mode it was in."""
    is_batches = isinstance(data, Iterable) and not is_map_style(data)
    batches = data if is_batches else DataLoader(cast("Dataset[Any]", data), 256, collate_fn=collate_examples)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    outputs, targets = [], []
    with torch.no_grad(), training_mode(model, False):
        for inputs, target in items_of(cast("Iterable[Any]", batches), "the evaluation data", "an evaluation"):
            args, kwargs = call_arguments(torch.utils._pytree.tree_map(lambda leaf: _moved(leaf, device), inputs))
            outputs.append(model(*args, **kwargs).cpu())
            targets.append(target.cpu())
    if not outputs:
        raise ScoringError("evaluation data must hold at least one example, but is empty")
    return torch.cat(outputs), torch.cat(targets)


def _moved(leaf: Any, device: torch.device) -> Any:
    return leaf.to(device) if isinstance(leaf, Tensor) else leaf
