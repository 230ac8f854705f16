"""The size of the file that a runtime opens: written and read for a few widths, estimated for all others.

A file holds 4 bytes for each parameter (1 in int8, with a scale for each channel) and a description of the graph, which
is nearly the same at all widths. Smallest example: files of 1,000 and 10,000 parameters with 24 and 60 KB have 20 KB of
description and 4 bytes a parameter. The file of the final pick is written itself.
"""

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from cafenet.modules.copying import copy_of
from cafenet.modules.inputs import call_arguments
from cafenet.runtimes.choose import file_for, file_format_of
from cafenet.searching.latency.estimate import fitted, spread_rows
from cafenet.searching.latency.measure import LatencyConfig, resized
from cafenet.space.bins import Bins
from cafenet.space.cost import FloatArray, IntArray
from cafenet.space.width_space import WidthSpace

NUM_WRITTEN = 6
"""Number of width vectors whose files are written for the estimate."""


def file_bytes(model: nn.Module, example_inputs: Any, settings: LatencyConfig) -> int:
    """Write the file of a model for a runtime and return its size.

    Args:
        model: The model; it is not changed.
        example_inputs: Inputs of the model, whose shapes the file fixes.
        settings: The options that name the runtime, the batch size and the quantisation.

    Returns:
        The number of bytes of all parts of the file.

    Raises:
        CafeNetError: If the format cannot hold the model.

    Example:
        >>> import cafenet, torch
        >>> from cafenet.searching.file_size import file_bytes
        >>> linear = torch.nn.Linear(100, 50)
        >>> file_bytes(linear, torch.zeros(1, 100), cafenet.LatencyConfig()) > 4 * 100 * 50
        True
    """
    with torch.no_grad(), torch.random.fork_rng([]):
        inputs = resized(call_arguments(example_inputs), settings.batch_size, torch.device("cpu"))
        runner = copy_of(model).cpu().eval()
        with file_for(file_format_of(settings.runtime), runner, inputs, settings.quantize) as path:
            return sum(each.stat().st_size for each in path.parent.iterdir())


class FileSizes:
    """An estimate of file sizes, fitted to the files of a few width vectors."""

    def __init__(self, space: WidthSpace, bins: Bins, example_inputs: Any, settings: LatencyConfig) -> None:
        """Write nothing yet.

        Args:
            space: The width space of the full model.
            bins: The bins of each group, which decide the widths that can occur.
            example_inputs: Inputs of the model.
            settings: The options that name the runtime, the batch size and the quantisation.
        """
        self._space, self._bins, self._options = space, bins, (example_inputs, settings)

    @cached_property
    def full(self) -> int:
        """Size of the full model's file."""
        return file_bytes(self._space.extract(), *self._options)

    def written(self, bin_counts: IntArray) -> int:
        """Write the file of a width vector.

        Args:
            bin_counts: Bins per group.

        Returns:
            Its size in bytes.
        """
        return file_bytes(self._space.extract(self._bins.widths(bin_counts).tolist()), *self._options)

    def predict(self, widths: IntArray) -> FloatArray:
        """Estimate sizes.

        Args:
            widths: Channels per group, shape (N, groups).

        Returns:
            N sizes in bytes; a larger width never has a smaller one.
        """
        sizes: FloatArray = (self._terms(widths) * self._rates).sum(axis=1)
        return sizes

    @cached_property
    def _rates(self) -> FloatArray:
        """Bytes of each term at full width: the description, the parameters, then the groups."""
        rows = spread_rows(self._bins.num_bins, NUM_WRITTEN, np.random.default_rng(0))
        sizes = np.array([float(self.written(row)) for row in rows])
        return fitted(self._terms(self._bins.widths(rows)), sizes, num_shared=2)

    def _terms(self, widths: IntArray) -> FloatArray:
        """Return the terms of the sum, each 1 at full width."""
        full = np.array([group.channels for group in self._space.groups])
        params = self._space.params(widths) / self._space.params()
        return np.column_stack([np.ones(len(widths)), params, widths / full])
