"""Running statistics of batch norm: finding them, and averaging them anew over batches."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from cafenet.modules.inputs import call_arguments


def renew_statistics(model: nn.Module, inputs: Iterable[Any]) -> int:
    """Replace the batch-norm statistics of a plain model, in place, by their average over batches.

    Args:
        model: The model.
        inputs: Inputs of the batches. None is read if the model keeps no statistics.

    Returns:
        The number of batches that were run.
    """
    num_batches = 0
    with collecting_statistics(model) as norms, torch.no_grad():
        buffers = dict(model.named_buffers())
        for path in norms:
            reset_statistics(buffers, path)
        for each in inputs if norms else ():
            args, kwargs = call_arguments(each)
            model(*args, **kwargs)
            num_batches += 1
    return num_batches


def has_statistics(model: nn.Module) -> bool:
    """Return whether a model keeps statistics that recalibration must renew.

    Args:
        model: The model.

    Returns:
        True if some norm layer tracks running statistics.
    """
    return bool(_norms(model))


def _norms(model: nn.Module) -> dict[str, _NormBase]:
    """Return the norm layers with running statistics, by path."""
    return {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, _NormBase) and module.track_running_stats and module.running_mean is not None
    }


def reset_statistics(buffers: dict[str, Tensor], path: str) -> None:
    """Reset the running statistics of one norm layer.

    Args:
        buffers: Buffers by name, changed in place.
        path: Path of the norm layer.
    """
    prefix = f"{path}." if path else ""
    for name, value in (("running_mean", 0.0), ("running_var", 1.0), ("num_batches_tracked", 0)):
        if f"{prefix}{name}" in buffers:
            buffers[f"{prefix}{name}"].fill_(value)


@contextmanager
def collecting_statistics(model: nn.Module) -> Iterator[list[str]]:
    """Put batch norms in train mode with equal weights for all batches (momentum None) and the rest in eval mode.

    Args:
        model: The model, which has its former modes on exit.

    Yields:
        Paths of the norm layers with running statistics.
    """
    norms = _norms(model)
    modes = {module: module.training for module in model.modules()}
    momenta = {module: module.momentum for module in norms.values()}
    try:
        model.eval()
        for module in norms.values():
            module.training = True
            module.momentum = None
        yield list(norms)
    finally:
        for each, mode in modes.items():
            each.training = mode
        for norm, momentum in momenta.items():
            norm.momentum = momentum
