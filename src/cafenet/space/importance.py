"""A pretrained start: channels are sorted by importance, so that the leading ones, which every width keeps, matter
most.

Units of a group are interchangeable: a permutation of them in all their slots does not change the function of the
network. Smallest example: the third filter of a convolution with three filters is the strongest. After sorting it is
the first, and the input channels 0 and 2 of the next layer have changed places.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from cafenet.common.options import check_arguments
from cafenet.errors import WidthError
from cafenet.modules.copying import copy_of
from cafenet.modules.tensors import named_tensors, unsaved_buffers
from cafenet.modules.unwrapping import unwrap
from cafenet.space.layout import IntArray, Layout
from cafenet.space.width_space import TracedSpace, WidthSpace

_READERS = (_ConvNd, nn.Linear, nn.MultiheadAttention, nn.RNNBase)
"""Layers that read channels in the second dimension of their weights, or in the first for transposed convolutions."""
_DEAD = 1e-4
"""A channel carries no information if the square of its normalisation factor, relative to the mean, is below this
value.
"""


def unit_importance(space: WidthSpace, model: nn.Module | None = None) -> list[npt.NDArray[np.float64]]:
    """Measures the importance of every unit: the mean square of its weights in each slot, relative to the slot's
    mean.

    Batch norm removes the scale of the weights that create a channel. The importance of such a channel is therefore
    computed from the weights of the layers that read it. The factor of the batch norm counts only if it is close to
    zero.

    Args:
        space: The width space.
        model: A model with the same tensors as the traced one, whose weights are measured in its place.

    Returns:
        One array per group, with one number per unit.
    """
    layout = space.layout
    source = unwrap(space.model if model is None else model)
    total, read, factor = np.zeros((3, layout.num_units))
    is_read, is_normalised, has_factor = np.zeros((3, layout.num_units), dtype=bool)
    parameters = dict(source.named_parameters())
    for name, axes in layout.axes.items():
        owner = source.get_submodule(name.rpartition(".")[0])
        for dim, pattern in axes.items():
            units = layout.patterns[pattern]
            held = units[units >= 0]
            if _normalises(owner):
                is_normalised[held] = True
            if name.endswith("bias") or name not in parameters:
                continue
            share = sum(_shares_of_units(parameters[name], dim, row, layout.num_units) for row in np.atleast_2d(units))
            total += share
            if _normalises(owner):
                factor += share
                has_factor[held] = True
            elif _reads(owner, dim):
                read += share
                is_read[held] = True
    read[has_factor & (factor < _DEAD)] = 0.0
    importance = np.where(is_normalised & is_read, read, total)
    edges = layout.first_units
    return [importance[edges[number] : edges[number + 1]] for number in range(len(space.groups))]


def _normalises(layer: nn.Module) -> bool:
    """Whether a layer normalises each channel, or each group of channels, separately (layer norm does not)."""
    return isinstance(layer, (_NormBase, nn.GroupNorm)) or hasattr(layer, "running_mean")


def _reads(layer: nn.Module, dim: int) -> bool:
    if isinstance(layer, _ConvNd) and layer.groups == layer.in_channels > 1:  # depthwise: it creates new channels
        return False
    return isinstance(layer, _READERS) and dim == (0 if isinstance(layer, _ConvTransposeNd) else 1)


def _shares_of_units(parameter: Tensor, dim: int, units: IntArray, num_units: int) -> npt.NDArray[np.float64]:
    """Mean square of each unit's weights, relative to the mean square of all; 0 for units that are not in this slot."""
    others = [d for d in range(parameter.ndim) if d != dim]
    square = parameter.detach().double() ** 2
    weight = (square.mean(dim=others) if others else square).cpu().numpy()
    varying = units >= 0
    count = np.bincount(units[varying], minlength=num_units)
    summed = np.bincount(units[varying], weights=weight[varying], minlength=num_units)
    return summed / np.maximum(count, 1) / max(float(weight.mean()), 1e-24)


def sort_by_importance(space: WidthSpace, model: nn.Module | None = None) -> nn.Module:
    """Copies the model with the most important units of every group in front. The copy computes the same function.

    Args:
        space: The width space.
        model: A model with the same tensors as the traced one, which is sorted in its place.

    Returns:
        The sorted copy.

    Raises:
        WidthError: If `space` is not a width space.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> from cafenet.space.importance import sort_by_importance
        >>> model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReLU(), nn.Conv2d(3, 2, 1))
        >>> with torch.no_grad():
        ...     strongest = model[0].weight[2].mul_(100).clone()
        >>> x = torch.randn(1, 2, 4, 4)
        >>> sorted_model = sort_by_importance(cafenet.trace(model, x))
        >>> torch.equal(sorted_model[0].weight[0], strongest)
        True
        >>> torch.allclose(sorted_model(x), model(x), atol=1e-4)
        True
    """
    check_arguments(WidthError, space=(space, TracedSpace))
    source = unwrap(space.model if model is None else model)
    return in_order(space, source, importance_order(space, source))


def importance_order(space: WidthSpace, model: nn.Module) -> IntArray:
    """Sorts all units of the space by importance inside their groups.

    Args:
        space: The width space.
        model: A model with the same tensors as the traced one, whose weights are measured.

    Returns:
        The numbers of all units, group by group, with the most important unit of each group first.
    """
    return np.concatenate(
        [
            first + np.argsort(-importance, kind="stable")
            for first, importance in zip(space.layout.first_units[:-1], unit_importance(space, model), strict=True)
        ]
    )


def in_order(space: WidthSpace, model: nn.Module, order: IntArray) -> nn.Module:
    """Copies a model with its units in another order. The copy computes the same function.

    Args:
        space: The width space.
        model: A model with the same tensors as the traced one. It is not changed.
        order: Numbers of all units. The unit `order[i]` takes the place of unit i.

    Returns:
        The copy.
    """
    sorted_model = copy_of(unwrap(model))
    moves = [_moved_positions(pattern, order) for pattern in space.layout.patterns]
    with torch.no_grad():
        for name, tensor in named_tensors(sorted_model).items():
            _permute(tensor, space.layout, name, moves)
    return sorted_model


def put_in_order(space: WidthSpace, source: nn.Module, order: IntArray, model: nn.Module) -> None:
    """Copies the weights and buffers of one model into another, with the units in another order.

    Args:
        space: The width space.
        source: The model that gives its weights and buffers. It is not changed.
        order: Numbers of all units. The unit `order[i]` takes the place of unit i.
        model: The model that receives the weights and buffers.
    """
    ordered = in_order(space, source, order)
    model.load_state_dict(ordered.state_dict())
    for name, buffer in constants(space, ordered).items():
        model.get_buffer(name).copy_(buffer)


def constants(space: WidthSpace, model: nn.Module) -> dict[str, Tensor]:
    """Collects the buffers with channels that a state dict leaves out (`persistent=False`); their order is that of
    the weights.

    Args:
        space: The width space.
        model: The model that holds the buffers.

    Returns:
        The buffers by name.
    """
    return {name: model.get_buffer(name) for name in sorted(unsaved_buffers(model) & space.layout.axes.keys())}


def channels_before(space: WidthSpace, channels: Mapping[str, Sequence[int]], order: IntArray) -> dict[str, list[int]]:
    """Translates channels of a model that was reordered by `in_order` into channels of the model before.

    Args:
        space: The width space.
        channels: Channels of the reordered model, by group name.
        order: The order that was given to `in_order`.

    Returns:
        The channels of the original model in rising order, by group name.
    """
    found = {}
    for group, first in zip(space.groups, space.layout.first_units[:-1], strict=True):
        if group.name in channels:
            moved = _moved_positions(group.unit_of_channel + first, order)
            found[group.name] = sorted(moved[list(channels[group.name])].tolist())
    return found


def _moved_positions(pattern: IntArray, order: IntArray) -> IntArray:
    """Old position at each new position: the k-th position of a unit takes the k-th position of the unit that is put
    there.
    """
    if pattern.ndim > 1:  # heads change places, and the features inside of all heads do
        first, second = (_moved_positions(row, order) for row in pattern)
        return first[second]
    by_unit = np.argsort(pattern, kind="stable")
    starts = np.searchsorted(pattern[by_unit], np.arange(order.size))
    varying = np.flatnonzero(pattern >= 0)
    rank = np.empty(pattern.size, dtype=np.int64)
    rank[by_unit] = np.arange(pattern.size)
    moved = np.arange(pattern.size)
    units = pattern[varying]
    moved[varying] = by_unit[starts[order[units]] + rank[varying] - starts[units]]
    return moved


def _permute(tensor: Tensor, layout: Layout, name: str, moves: list[IntArray]) -> None:
    for dim, pattern in layout.axes.get(name, {}).items():
        tensor.copy_(tensor.index_select(dim, torch.from_numpy(moves[pattern]).to(tensor.device)))


def restore_constants(model: nn.Module, saved: Mapping[str, Any]) -> None:
    """Load the buffers that `load_state_dict` does not cover; older checkpoints do not hold them.

    Args:
        model: The model whose buffers are set.
        saved: Content of a checkpoint.
    """
    for name, value in saved.get("constants", {}).items():
        model.get_buffer(name).copy_(value)
