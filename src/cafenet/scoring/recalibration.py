"""Batch-norm statistics of one subnet, averaged over training batches, because the statistics of another subnet are
wrong."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from cafenet.modules.batch_norm import collecting_statistics, renew_statistics, reset_statistics
from cafenet.modules.inputs import call_arguments
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
        with collecting_statistics(self._harness.model) as norms:
            for path in [] if goes_on else norms:
                reset_statistics(self.buffers, path)
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
    renew_statistics(model, (inputs for inputs, _ in examples.batches(0, examples.size, batch_size)))
