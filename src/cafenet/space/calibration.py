"""Calibration data of int8 files: inputs of the training set, in batches of the size that the file takes."""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from cafenet.errors import ExportError
from cafenet.modules.batches import batch_size as size_of
from cafenet.modules.batches import pair_of, part_of, without_labels
from cafenet.modules.inputs import call_arguments
from cafenet.runtimes.session import Inputs
from cafenet.space.batch_sizes import batch_size

MOST_EXAMPLES = 128
"""Number of examples that ranges of activations are taken from."""


def calibration_inputs(data: Any, example: Inputs) -> list[Inputs]:
    """Read calibration data.

    Args:
        data: A data set, a loader or an iterable of batches: pairs (inputs, target), dicts, or tensors of inputs.
        example: Example inputs of the file, whose batch size the batches get.

    Returns:
        Batches of inputs, of at most 128 examples together.

    Raises:
        ExportError: If the data are none, or hold fewer examples than one batch.
    """
    size, found = batch_size(example) or 1, []
    for batch in _batches(data, size):
        pair = (batch, batch) if isinstance(batch, Tensor) else pair_of(batch)
        if pair is None:
            raise ExportError(
                "calibration must give pairs (inputs, target), dicts or tensors of inputs, but gives "
                f"{type(batch).__name__}"
            )
        inputs = without_labels(pair[0])
        for start in range(0, size_of((inputs, inputs)) - size + 1, size):
            found.append(call_arguments(part_of((inputs, 0), start, start + size)[0]))
        if len(found) * size >= MOST_EXAMPLES:
            break
    if not found:
        raise ExportError(f"calibration must hold at least one batch of {size} examples, but holds none")
    return found[: max(1, MOST_EXAMPLES // size)]


def _batches(data: Any, size: int) -> Iterator[Any]:
    """Iterate over the batches of data."""
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        return iter(DataLoader(data, size))
    if isinstance(data, Iterable):
        return iter(data)
    raise ExportError(
        "quantize='int8' needs calibration=, some training data (a data set, a loader or a list of batches), but got "
        f"{type(data).__name__}"
    )
