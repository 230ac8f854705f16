"""The slim model of widths that were found in a supernet, with batch-norm statistics of its own."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

from cafenet.errors import TrainingError
from cafenet.modules.batch_norm import has_statistics, renew_statistics
from cafenet.modules.batches import Batch, batch_size
from cafenet.space.width_space import WidthSpace
from cafenet.training.batch_feed import as_dataset, collate_examples, is_map_style

_BATCH_SIZE = 128
"""Number of examples per batch of a data set."""


class Found(Protocol):
    """Result of a search: the channels of each group that stay."""

    @property
    def channels(self) -> Mapping[str, list[int]]:
        """Numbers of the kept channels, by group name."""
        ...


def slim_model(space: WidthSpace, model: nn.Module, found: Found, data: Any, num_examples: int) -> nn.Module:
    """Cut a slim model and average its batch-norm statistics over training data.

    Args:
        space: The width space.
        model: The weights at full width.
        found: The channels to keep.
        data: A data set of (inputs, target), or a loader or other iterable of such batches.
        num_examples: Number of examples that are enough.

    Returns:
        The slim model in eval mode.

    Raises:
        TrainingError: If the model has batch norm and the data are empty.
    """
    slim = space.extract(channels=found.channels, model=model)
    device = next(model.parameters()).device
    inputs = (tree_map(lambda leaf: _on(leaf, device), each) for each in _first_inputs(_batches(data), num_examples))
    if has_statistics(slim) and not renew_statistics(slim, inputs):
        raise TrainingError("batch norm needs data for the statistics of a slim model, but there are none; give some")
    return slim.eval()


def _batches(data: Any) -> Iterable[Batch]:
    """Return batches as they come, or those of a data set in an order that mixes classes."""
    if isinstance(data, DataLoader) or not is_map_style(data):
        batches: Iterable[Batch] = data
        return batches
    order = torch.Generator().manual_seed(0)
    return DataLoader(
        as_dataset(data), _BATCH_SIZE, shuffle=True, generator=order, collate_fn=collate_examples, drop_last=False
    )


def _first_inputs(batches: Iterable[Batch], num_examples: int) -> Iterator[Any]:
    """Yield the inputs of batches until they have so many examples."""
    seen = 0
    for batch in batches:
        yield batch[0]
        seen += batch_size(batch)
        if seen >= num_examples:
            return


def _on(leaf: Any, device: torch.device) -> Any:
    return leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf
