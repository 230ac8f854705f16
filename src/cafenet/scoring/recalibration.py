"""Batch-norm statistics of one subnet, averaged over training batches, because the statistics of another subnet are
wrong."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from cafenet.modules.calling import call_arguments
from cafenet.modules.snapshot import unchanged
from cafenet.scoring.examples import Examples
from cafenet.space.layout import Subnet, cuts
from cafenet.space.slicing import slice_tensors
from cafenet.supernet.supernet import Supernet


class PreparedSubnet:
    """A subnet whose tensors are sliced once and run many times, with batch-norm statistics of its own."""

    def __init__(self, supernet: Supernet, subnet: Subnet) -> None:
        """Slice the tensors of a subnet.

        Args:
            supernet: The supernet.
            subnet: The subnet.
        """
        self._harness, layout = supernet.harness, supernet.space.layout
        self._chosen = cuts(layout, subnet)
        with torch.no_grad():
            parameters = slice_tensors(self._harness.parameters(), layout, self._chosen)
            buffers = slice_tensors(self._harness.buffers(), layout, self._chosen)
        self.buffers = {name: buffer.clone() for name, buffer in buffers.items()}
        """The subnet's own buffers, with its batch-norm statistics."""
        self._parameters = {name: parameter.detach() for name, parameter in parameters.items()}

    def run(self, inputs: Any) -> Any:
        """Run the subnet in the model's current mode; batch norm in train mode writes into `buffers`.

        Args:
            inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments.

        Returns:
            The output of the model.
        """
        args, kwargs = call_arguments(inputs)
        tensors = {**self._parameters, **self.buffers}
        with torch.no_grad(), unchanged(self._harness.model):  # the next subnet must not see what this one caches
            output = self._harness.run(tensors, self._chosen, args, kwargs)
        self.buffers = {name: tensors[name] for name in self.buffers}
        return output

    def recalibrate(self, inputs: Iterable[Any], *, goes_on: bool = False) -> None:
        """Replace the batch-norm statistics by their average over batches; all other layers stay in eval mode.

        Args:
            inputs: Inputs of the batches.
            goes_on: If True, the batches of earlier calls are part of the average, with equal weights.
        """
        with _collecting_statistics(self._harness.model) as norms:
            for path in [] if goes_on else norms:
                _reset_statistics(self.buffers, path)
            for each in inputs:
                if norms:
                    self.run(each)


def recalibrate_model(model: nn.Module, examples: Examples, batch_size: int = 128) -> None:
    """Replace the batch-norm statistics of a plain model, in place, by their average over batches.

    Args:
        model: The model.
        examples: Training examples.
        batch_size: Number of examples in a batch.
    """
    with _collecting_statistics(model) as norms, torch.no_grad():
        buffers = dict(model.named_buffers())
        for path in norms:
            _reset_statistics(buffers, path)
        if norms:
            for inputs, _ in examples.batches(0, examples.size, batch_size):
                args, kwargs = call_arguments(inputs)
                model(*args, **kwargs)


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


def _reset_statistics(buffers: dict[str, Tensor], path: str) -> None:
    """Reset the running statistics of one norm layer."""
    prefix = f"{path}." if path else ""
    for name, value in (("running_mean", 0.0), ("running_var", 1.0), ("num_batches_tracked", 0)):
        if f"{prefix}{name}" in buffers:
            buffers[f"{prefix}{name}"].fill_(value)


@contextmanager
def _collecting_statistics(model: nn.Module) -> Iterator[list[str]]:
    """Put batch norms in train mode with equal weights for all batches (momentum None) and the rest in eval mode."""
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
