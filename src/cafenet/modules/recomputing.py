"""Gradient checkpointing of a model that runs on other tensors than its own.

A checkpoint forgets what a part of the forward computed, and runs that part again in the backward pass. By then the
model has its own tensors back. Smallest example: a block of 8 channels that ran with 3 of them would be computed again
with 8. So every checkpoint that a forward makes remembers how the tensors are put in place again.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.utils import checkpoint as checkpointing

_GENERATOR = "_checkpoint_without_reentrant_generator"
"""Name of the function by which all checkpoints that are not reentrant are made."""


@contextmanager
def recomputed_in(places: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Lets checkpoints of a forward inside the block run again inside `places()`.

    Reentrant checkpoints are not covered. Nothing is done while gradients are off.

    Args:
        places: Returns a context in which the model has the tensors of this forward.
    """
    original = getattr(checkpointing, _GENERATOR, None)
    if original is None or not torch.is_grad_enabled():
        yield
        return
    is_over = False

    def generator(function: Callable[..., Any], *options: Any, **more: Any) -> Any:
        def again(*args: Any, **kwargs: Any) -> Any:
            if not is_over:  # the forward itself, whose tensors are in place
                return function(*args, **kwargs)
            with places():
                return function(*args, **kwargs)

        return original(again, *options, **more)

    setattr(checkpointing, _GENERATOR, generator)
    try:
        yield
    finally:
        is_over = True
        setattr(checkpointing, _GENERATOR, original)
