"""Gradient checkpointing is refused: its recomputation would not see the channels of a subnet."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from cafenet.errors import TrainingError


def checkpointing_error() -> TrainingError:
    """Return the error that explains why gradient checkpointing is refused.

    Returns:
        The error, not raised.
    """
    return TrainingError(
        "a model with gradient checkpointing cannot be a supernet: its recomputation in the backward pass would not "
        "see the subnet's channels; switch checkpointing off"
    )


def refuse_reentrant_checkpointing(loss: Tensor) -> None:
    """Refuse reentrant gradient checkpointing in the graph of a loss.

    Reentrant checkpoints recompute at full width, often without an error.

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


@contextmanager
def checkpointing_refused() -> Iterator[None]:
    """Refuse the other kind of gradient checkpointing inside the block, where a checkpoint runs a module.

    Its backward pass would end in an error about sizes of tensors. While such a checkpoint runs, PyTorch keeps the hook
    that throws its tensors away.

    Raises:
        TrainingError: If a module runs in a checkpoint.
    """
    top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)

    def look(module: nn.Module, inputs: Any) -> None:
        hooks = top_hooks(False) if top_hooks else None
        if hooks and getattr(hooks[0], "__module__", None) == torch.utils.checkpoint.__name__:
            raise checkpointing_error()

    handle = nn.modules.module.register_module_forward_pre_hook(look)
    try:
        yield
    finally:
        handle.remove()


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
