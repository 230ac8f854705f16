"""Evaluation of a finished model on data that it has never seen."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from cafenet.common.options import check_arguments
from cafenet.common.user_code import items_of
from cafenet.errors import ScoringError
from cafenet.modules.batches import LossFunction
from cafenet.modules.calling import training_mode
from cafenet.modules.inputs import call_arguments, running_on
from cafenet.modules.outputs import logits_of
from cafenet.scoring.examples import Data, as_pair
from cafenet.scoring.metrics import check_labels
from cafenet.scoring.token_metrics import IGNORED, TokenMetric, predicts_next
from cafenet.training.batch_feed import collate_examples, is_map_style


def evaluate(model: nn.Module, data: Data, *, loss: str | LossFunction | None = None) -> dict[str, Any]:
    """Evaluate a model on all examples of a data set.

    Args:
        model: The model; its mode is unchanged afterwards.
        data: A data set, a loader, or an iterable of batches: pairs (inputs, target), or dicts with an entry `labels`.
        loss: The loss that the model was trained with. With "cross_entropy", targets of two dimensions are class
            probabilities; otherwise they are attributes.

    Returns:
        `accuracy` and `num_examples`; with more than 5 classes also `top5`; with multi-label targets also
        `per_attribute`, of which `accuracy` is the mean. All accuracies are shares from 0 to 1. For a model that gives
        scores for the tokens of texts: `perplexity`, `token_accuracy`, `num_tokens` and `num_examples`, of all tokens
        whose label is not -100.

    Raises:
        ScoringError: If the data are empty or do not fit the model, or a label is not among the model's outputs.

    Example:
        >>> import cafenet, torch
        >>> data = torch.utils.data.TensorDataset(torch.eye(3), torch.arange(3))
        >>> cafenet.evaluate(torch.nn.Identity(), data)
        {'accuracy': 1.0, 'num_examples': 3}
    """
    runs = _runs(model, data)
    first = next(runs)
    runs = chain([first], runs)
    if first[0].ndim == 3 and first[1].shape == first[0].shape[:2]:
        return _of_tokens(model, runs)
    outputs, targets = _joined(runs)
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
    return _joined(_runs(model, data))


def _joined(runs: Iterator[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return all outputs and all targets."""
    outputs, targets = zip(*runs, strict=True)
    return torch.cat(outputs), torch.cat(targets)


def _of_tokens(model: nn.Module, runs: Iterator[tuple[Tensor, Tensor]]) -> dict[str, Any]:
    """Return the metrics of tokens, summed up batch by batch, because all scores together may not fit into memory."""
    is_next, totals = predicts_next(model), torch.zeros(4, dtype=torch.float64)
    for logits, labels in runs:
        check_labels(logits, labels, "evaluation data")
        right, counts = TokenMetric("token_accuracy", is_next).sums(logits, labels)
        logarithms, _ = TokenMetric("perplexity", is_next).sums(logits, labels)
        totals += torch.stack([right.sum(), logarithms.sum(), counts.sum().double(), torch.tensor(float(len(labels)))])
    num_right, _, num_tokens, num_examples = totals.tolist()
    if not num_tokens:
        raise ScoringError(f"evaluation data must have labels other than {IGNORED}, but all are {IGNORED}")
    return {
        "perplexity": float(torch.exp(-totals[1] / num_tokens)),
        "token_accuracy": num_right / num_tokens,
        "num_tokens": int(num_tokens),
        "num_examples": int(num_examples),
    }


def _runs(model: nn.Module, data: Data) -> Iterator[tuple[Tensor, Tensor]]:
    """Run a model on the batches of data in eval mode; yield outputs and targets on the CPU."""
    check_arguments(ScoringError, model=(model, nn.Module))
    is_batches = isinstance(data, Iterable) and not is_map_style(data)
    if not is_batches and not is_map_style(data):
        raise ScoringError(f"data must be a data set, a DataLoader or a list of batches, but got {type(data).__name__}")
    batches = data if is_batches else DataLoader(cast("Dataset[Any]", data), 256, collate_fn=collate_examples)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    is_empty = True
    for batch in items_of(cast("Iterable[Any]", batches), "the evaluation data", "an evaluation"):
        inputs, target = as_pair(batch, "evaluation data")
        args, kwargs = call_arguments(torch.utils._pytree.tree_map(lambda leaf: _moved(leaf, device), inputs))
        with torch.no_grad(), training_mode(model, False), running_on("the evaluation data", ScoringError):
            output = logits_of(model(*args, **kwargs)).cpu()
        is_empty = False
        yield output, _labels(target).cpu()
    if is_empty:
        raise ScoringError("evaluation data must hold at least one example, but is empty")


def _labels(target: Any) -> Tensor:
    """Return a target that must be a tensor."""
    if isinstance(target, Mapping):
        raise ScoringError(f"dict batches need an entry 'labels', but have only {', '.join(map(str, target))}")
    labels: Tensor = target
    return labels


def _moved(leaf: Any, device: torch.device) -> Any:
    """Move a tensor to the device; return anything else unchanged."""
    return leaf.to(device) if isinstance(leaf, Tensor) else leaf
