"""Reentrant gradient checkpointing is refused: its recomputation would not see the channels of a subnet."""

import torch
from torch import Tensor

from cafenet.errors import TrainingError


def checkpointing_error() -> TrainingError:
    """Return the error that explains why reentrant gradient checkpointing is refused.

    Returns:
        The error, not raised.
    """
    return TrainingError(
        "a model with reentrant gradient checkpointing cannot be a supernet: its recomputation in the backward pass "
        "would not see the subnet's channels; use checkpoint(..., use_reentrant=False), or switch checkpointing off"
    )


def refuse_reentrant_checkpointing(loss: Tensor) -> None:
    """Refuse reentrant gradient checkpointing in the graph of a loss.

    Reentrant checkpoints recompute at full width, often without an error; the other kind sees the subnet's tensors.

    Args:
        loss: A loss with its graph.

    Raises:
        TrainingError: If the graph holds a reentrant checkpoint.
    """
    nodes, met = [loss.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in met:
            continue
        if node.name() == "CheckpointFunctionBackward":
            raise checkpointing_error()
        met.add(node)
        nodes += [following for following, _ in node.next_functions]


def is_from_checkpointing(error: BaseException) -> bool:
    """Return whether an error comes from gradient checkpointing.

    Args:
        error: An error that a forward or a backward pass raised.

    Returns:
        True if code of PyTorch's checkpointing raised it.
    """
    if isinstance(error, torch.utils.checkpoint.CheckpointError):
        return True
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith("torch/utils/checkpoint.py"):
            return True
        trace = trace.tb_next
    return False
