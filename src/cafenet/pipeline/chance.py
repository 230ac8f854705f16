"""The score of a model on some examples beside that of chance, which is a constant answer.

Smallest example: a language model gives the right words of two tokens the probabilities 1/2 and 1/8, a perplexity of 4.
If all labels are two words, equally often, a constant answer gives each 1/2, a perplexity of 2: chance is better.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from cafenet.modules.outputs import logits_of
from cafenet.pipeline.job import Job
from cafenet.scoring.examples import Examples
from cafenet.scoring.metrics import chance_accuracy, metric_name, metric_values
from cafenet.scoring.model_score import joined, metric_of, output_of
from cafenet.scoring.token_metrics import IGNORED, TokenMetric, predicts_next

_BATCH = 128
_PLACE = "the look at the model before the search"


@dataclass(frozen=True)
class Compared:
    """A score and that of chance, by one metric."""

    metric: str
    """Name of the metric."""
    score: float
    """The model's score; higher is better."""
    chance: float
    """Score of a constant answer, or of the answers to other examples."""
    error: float
    """Standard error of the difference."""
    scale: float
    """Distance from chance to perfect answers, or the size of the scores themselves if nothing is perfect."""


def against_chance(model: nn.Module, held: Examples, job: Job) -> Compared:
    """Score a model on examples, beside chance.

    A metric by name is accuracy for classes, and for tokens perplexity or token accuracy. Chance of a metric of the
    user's own is what it gives for the targets of other examples.

    Args:
        model: The model; it is unchanged afterwards.
        held: The examples.
        job: The metric and the loss of the search.

    Returns:
        Both scores.
    """
    if not isinstance(job.metric, str):
        return _of_own_metric(model, held, job)
    few = next(iter(held.batches(0, held.size, 2)))
    logits, target = logits_of(output_of(model, few[0], "validation data")), held.batch[1]
    if isinstance(logits, Tensor) and isinstance(target, Tensor) and logits.ndim == 3 and target.ndim == 2:
        return _of_tokens(model, held, job, logits.shape[-1])
    return _of_classes(model, held, job)


def _of_classes(model: nn.Module, held: Examples, job: Job) -> Compared:
    """Compare the accuracy with that of the most frequent label."""
    target = held.batch[1]
    score = float(metric_of("accuracy", job.loss, "")(_outputs(model, held, job), target).mean())
    chance = chance_accuracy(target, job.loss)
    return Compared("accuracy", score, chance, (chance * (1 - chance) / held.size) ** 0.5, 1 - chance)


def _of_tokens(model: nn.Module, held: Examples, job: Job, num_words: int) -> Compared:
    """Compare the scores of tokens with those of the words' frequencies, batch by batch, as all may not fit."""
    name = "token_accuracy" if job.metric == "token_accuracy" else "perplexity"
    metric = TokenMetric(name, predicts_next(model))
    constant = _frequencies(held.batch[1][:, 1:] if metric.is_next else held.batch[1], num_words)
    own, other = [], []
    for inputs, target in held.batches(0, held.size, _batch_size(job)):
        own.append(metric(output_of(model, inputs, "validation data"), target.cpu()))
        other.append(metric(constant.expand(*target.shape, -1), target.cpu()))
    score, chance, error = _compared(torch.cat(own), torch.cat(other))
    return Compared(name, score, chance, error, 1 - chance if name == "token_accuracy" else abs(chance))


def _frequencies(labels: Tensor, num_words: int) -> Tensor:
    """Return the logarithm of each word's share of the labels, as scores of one token."""
    counted = labels[labels != IGNORED].cpu()
    return (torch.bincount(counted, minlength=num_words).double() / max(counted.numel(), 1)).log().float()


def _of_own_metric(model: nn.Module, held: Examples, job: Job) -> Compared:
    """Compare the metric with what it gives for the targets of other examples."""
    metric = metric_of(job.metric, job.loss, _PLACE)
    output, target = _outputs(model, held, job), held.batch[1]
    own = metric_values(metric, output, target).double()
    other = metric_values(metric, output, _rolled(target, held.size)).double()
    score, chance, error = _compared(own, other)
    return Compared(metric_name(job.metric), score, chance, error, max(abs(score), abs(chance)))


def _compared(own: Tensor, other: Tensor) -> tuple[float, float, float]:
    """Return the means of two scores, and the standard error of their difference if there is one value per example."""
    difference = own - other
    error = float(difference.std()) / difference.numel() ** 0.5 if difference.numel() > 1 else 0.0
    return float(own.mean()), float(other.mean()), error


def _outputs(model: nn.Module, held: Examples, job: Job) -> Any:
    """Return the outputs of a model for all examples."""
    batches = held.batches(0, held.size, _batch_size(job))
    return joined([output_of(model, inputs, "validation data") for inputs, _ in batches])


def _batch_size(job: Job) -> int:
    """Return a number of examples that fits into memory, as far as the user has said."""
    return min(_BATCH, job.scoring.batch_size)


def _rolled(target: Any, size: int) -> Any:
    """Return the targets of other examples, which lie half of the data away."""
    roll = size // 2
    return tree_map(
        lambda leaf: leaf.roll(roll, 0) if isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == size else leaf,
        target,
    )
