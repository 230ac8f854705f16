"""Metrics of models that give a score for every word of a vocabulary at every token of a text.

Smallest example: two tokens whose right words get the probabilities 1/2 and 1/8. Their mean logarithm is that of 1/4,
so the perplexity is 4, as if the model had to guess among four words.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cafenet.errors import ScoringError
from cafenet.modules.outputs import logits_of

IGNORED = -100
"""Label of tokens that do not count, such as padding; PyTorch's cross entropy leaves it out, too."""


@dataclass(frozen=True)
class TokenMetric:
    """A metric of tokens that gives one value per example, the mean over its tokens whose label is not -100."""

    name: str
    """`token_accuracy`, the share of tokens whose best score is that of their label; `perplexity` or `negative_loss`,
    the mean logarithm of the label's probability, which is minus the logarithm of the perplexity."""
    is_next: bool = False
    """Whether the scores of a token are those of the next one, as in a decoder of transformers."""
    otherwise: Callable[[Any, Any], Tensor] | None = None
    """The metric of outputs that have no tokens; None refuses them."""

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, output: Any, target: Any) -> Tensor:
        logits = logits_of(output)
        if self.otherwise is not None and not (isinstance(logits, Tensor) and logits.ndim == 3):
            return self.otherwise(output, target)
        values, counts = self.sums(output, target)
        if int(counts.min()) == 0:
            raise ScoringError(
                f"every example must have a label other than {IGNORED} for the metric {self.name!r}, but one has none"
            )
        return values / counts

    def sums(self, output: Any, target: Any) -> tuple[Tensor, Tensor]:
        """Return the sum of the metric over the tokens of each example.

        Args:
            output: Scores of shape (batch, tokens, words), or an output with such `logits`.
            target: Labels of shape (batch, tokens).

        Returns:
            The sums, and the number of tokens that count, both of shape (batch,).

        Raises:
            ScoringError: If the shapes do not fit.
        """
        logits, labels = self._fitting(logits_of(output), target)
        if self.is_next:
            logits, labels = logits[:, :-1], labels[:, 1:]
        counted = labels != IGNORED
        if self.name == "token_accuracy":
            values = ((logits.argmax(dim=-1) == labels) & counted).double()
        else:
            values = -functional.cross_entropy(logits.transpose(1, 2).float(), labels, reduction="none").double()
        return values.sum(dim=1), counted.sum(dim=1)

    def _fitting(self, logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
        """Return scores and labels; refuse those that are not of tokens."""
        is_fitting = isinstance(logits, Tensor) and isinstance(labels, Tensor) and logits.ndim == 3
        if not is_fitting or labels.shape != logits.shape[:2] or labels.dtype != torch.int64:
            raise ScoringError(
                f"the metric {self.name!r} needs scores of shape (batch, tokens, words) and int64 labels of shape "
                f"(batch, tokens), but got {_described(logits)} and {_described(labels)}"
            )
        return logits, labels


def _described(value: Any) -> str:
    """Return the shape of a tensor, or the type of anything else."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    kind = "" if value.dtype == torch.int64 or value.is_floating_point() else f" of {value.dtype}"
    return f"{list(value.shape)}{kind}"


def predicts_next(model: object) -> bool:
    """Return whether a model scores the next token, so that its own loss moves labels by one.

    Args:
        model: The model.

    Returns:
        True for the decoders of transformers that generate texts; False for models with an encoder before the decoder,
        whose labels are moved already, for masked language models, and for all other models.
    """
    generates = getattr(model, "can_generate", None)
    has_encoder = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    return callable(generates) and bool(generates()) and not has_encoder
