"""Checks of one step of a training loop of the user's own, where mistakes would otherwise show deep inside PyTorch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils._pytree import tree_leaves

from cafenet.common.user_code import UserPart
from cafenet.errors import BinError, TrainingError
from cafenet.modules.batches import Batch, LossFunction, pair_of
from cafenet.space.bins import IntArray
from cafenet.training.losses import check_target, loss_by_name

STEP = "a step of the supernet"


class CheckedLoss:
    """A loss of a step, whose result must be one number, and whose labels are looked at where it raises.

    Args:
        loss: The loss, by name or as a function of (output, target).

    Raises:
        TrainingError: If it is neither, or the name is unknown.
    """

    def __init__(self, loss: str | LossFunction) -> None:
        self._name = loss if isinstance(loss, str) else None
        if not (isinstance(loss, str) or callable(loss)):
            raise TrainingError(
                f"loss_fn must be a function of (output, target) or the name of a loss, but is {loss!r}; for example "
                "torch.nn.functional.cross_entropy"
            )
        self._loss = loss_by_name(loss) if isinstance(loss, str) else UserPart(loss, "the loss", STEP)

    def __call__(self, output: Any, target: Any) -> Tensor:
        """Compute the loss.

        Args:
            output: Output of the model.
            target: Targets of the batch.

        Returns:
            The loss.

        Raises:
            TrainingError: If the labels do not fit the outputs, or the result is not one number.
        """
        try:
            loss = self._loss(output, target)
        except Exception:
            if self._name is not None:
                check_target(self._name, output, target)  # says what does not fit, if it is that
            raise
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            found = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise TrainingError(f"a loss must be one number as a tensor, the mean over the batch, but is {found}")
        return loss


def checked_pair(batch: Any) -> Batch:
    """Converts a batch of the user's loop to a pair.

    Args:
        batch: A pair (inputs, target), or a dict that the model is called with.

    Returns:
        The inputs and the target.

    Raises:
        TrainingError: If the batch is something else, or holds no example.
    """
    pair = pair_of(batch)
    if pair is None:
        raise TrainingError(f"a batch must be a pair (inputs, target) or a dict, but got {type(batch).__name__}")
    first = next((leaf for leaf in tree_leaves(pair) if isinstance(leaf, Tensor) and leaf.ndim), None)
    if first is None or not first.shape[0]:
        found = (
            "has no tensor with a row for each" if first is None else f"begins with one of shape {list(first.shape)}"
        )
        raise TrainingError(f"a batch must hold examples as tensors, but {found}")
    return pair


def checked_counts(bin_counts: Any, num_bins: Sequence[int]) -> IntArray:
    """Converts a width of the user's own to an array.

    Args:
        bin_counts: Bins per group.
        num_bins: Number of bins of each group.

    Returns:
        The array.

    Raises:
        BinError: If a group has no number, or none of its own.
    """
    try:
        counts = np.asarray(bin_counts)
    except (ValueError, TypeError, RuntimeError):  # lists of several lengths, a tensor with a graph
        counts = np.empty(0)
    is_whole = counts.dtype.kind in "iu" and counts.shape == (len(num_bins),)
    if not is_whole or not ((counts >= 1) & (counts <= np.asarray(num_bins))).all():
        raise BinError(
            f"bin_counts must be a whole number for each of {len(num_bins)} groups, from 1 to at most "
            f"{list(num_bins)[:8]}{' ...' if len(num_bins) > 8 else ''}, but is {str(bin_counts)[:80]!r}; "
            "supernet.sample() draws some"
        )
    return counts.astype(np.int64)
