"""Texts of several lengths in one batch: what a collate function padded batch by batch is padded to one length.

Smallest example: two batches of 3 and 5 tokens. Both become 5 tokens long; the two new columns of the first are masked.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional

from cafenet.modules.batches import LABELS, Batch
from cafenet.scoring.token_metrics import IGNORED

_MASK = "attention_mask"


def to_one_length(batches: Sequence[Batch]) -> list[Batch]:
    """Pad texts on the right to the length of the longest batch, if the batches have an attention mask.

    Args:
        batches: Pairs of inputs and targets.

    Returns:
        The batches. New tokens are 0 with a mask of 0, and labels of tokens are -100, so that neither the model nor a
        metric sees them. Batches without a mask are returned as they are.
    """
    if not all(_has_mask(inputs) for inputs, _ in batches):
        return list(batches)
    lengths = [int(inputs[_MASK].shape[1]) for inputs, _ in batches]
    longest = max(lengths)
    return [
        batch if length == longest else _padded(batch, length, longest)
        for batch, length in zip(batches, lengths, strict=True)
    ]


def _has_mask(inputs: Any) -> bool:
    """Return whether inputs are a dict with one mask value per token."""
    mask = inputs.get(_MASK) if isinstance(inputs, dict) else None
    return isinstance(mask, Tensor) and mask.ndim == 2


def _padded(batch: Batch, length: int, longest: int) -> Batch:
    """Return a batch with longer texts."""
    inputs, target = batch

    def pad(value: Any, filler: int) -> Any:
        is_of_tokens = isinstance(value, Tensor) and value.ndim == 2 and value.shape[1] == length
        return functional.pad(value, (0, longest - length), value=filler) if is_of_tokens else value

    longer = {key: pad(value, IGNORED if key == LABELS else 0) for key, value in inputs.items()}
    return longer, longer if isinstance(target, dict) else pad(target, IGNORED)
