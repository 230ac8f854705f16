"""A pretrained start: channels sorted by importance, so that the leading ones, which every width keeps, matter most.

Units of a group are interchangeable: permuting them in all their slots leaves the network's function as it is.
Smallest example: a convolution whose third filter is the strongest of three; after sorting it is the first, and the
next layer's input channels 0 and 2 have changed places.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from cafenet.modules.calling import copy_of, named_tensors, unsaved_buffers, unwrap
from cafenet.space.layout import IntArray, Layout
from cafenet.space.width_space import WidthSpace

_READERS = (_ConvNd, nn.Linear, nn.MultiheadAttention, nn.RNNBase)
"""Layers whose weights have what they are given in their second dimension, transposed convolutions in their first."""
_DEAD = 1e-4
"""The square of a normalisation's factor, relative to the mean, below which a channel says nothing."""


def unit_importance(space: WidthSpace, model: nn.Module | None = None) -> list[npt.NDArray[np.float64]]:
    """Per group, how much each unit weighs: the mean square of its weights in each slot, relative to the slot's mean.

    Where batch norm takes the size of the weights away that make a channel, only the weights of the layers that read
    it count. What batch norm multiplies with adds nothing to that, unless it is close to zero.
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
            share = _shares_of_units(parameters[name], dim, units, layout.num_units)
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
    """Each channel or group of channels by itself; layer norm keeps how large they are beside each other."""
    return isinstance(layer, (_NormBase, nn.GroupNorm)) or hasattr(layer, "running_mean")


def _reads(layer: nn.Module, dim: int) -> bool:
    if isinstance(layer, _ConvNd) and layer.groups == layer.in_channels > 1:  # depthwise: it makes channels anew
        return False
    return isinstance(layer, _READERS) and dim == (0 if isinstance(layer, _ConvTransposeNd) else 1)


def _shares_of_units(parameter: Tensor, dim: int, units: IntArray, num_units: int) -> npt.NDArray[np.float64]:
    """The mean square of each unit's weights, relative to that of all; 0 for units that are not in this slot."""
    others = [d for d in range(parameter.ndim) if d != dim]
    square = parameter.detach().double() ** 2
    weight = (square.mean(dim=others) if others else square).cpu().numpy()
    varying = units >= 0
    count = np.bincount(units[varying], minlength=num_units)
    summed = np.bincount(units[varying], weights=weight[varying], minlength=num_units)
    return summed / np.maximum(count, 1) / max(float(weight.mean()), 1e-24)


def sort_by_importance(space: WidthSpace, model: nn.Module | None = None) -> nn.Module:
    """A copy of the model that computes the same, with the most important units of every group in front."""
    source = unwrap(space.model if model is None else model)
    return in_order(space, source, importance_order(space, source))


def importance_order(space: WidthSpace, model: nn.Module) -> IntArray:
    """All units of the space, group by group, the most important of each first."""
    return np.concatenate(
        [
            first + np.argsort(-importance, kind="stable")
            for first, importance in zip(space.layout.first_units[:-1], unit_importance(space, model), strict=True)
        ]
    )


def in_order(space: WidthSpace, model: nn.Module, order: IntArray) -> nn.Module:
    """A copy of the model that computes the same, with the units `order` in place of the units 0, 1, 2, ..."""
    sorted_model = copy_of(unwrap(model))
    moves = [_moved_positions(pattern, order) for pattern in space.layout.patterns]
    with torch.no_grad():
        for name, tensor in named_tensors(sorted_model).items():
            _permute(tensor, space.layout, name, moves)
    return sorted_model


def put_in_order(space: WidthSpace, source: nn.Module, order: IntArray, model: nn.Module) -> None:
    """Give a model the weights and buffers of another one, with the units `order` in place of 0, 1, 2, ..."""
    ordered = in_order(space, source, order)
    model.load_state_dict(ordered.state_dict())
    for name, buffer in constants(space, ordered).items():
        model.get_buffer(name).copy_(buffer)


def constants(space: WidthSpace, model: nn.Module) -> dict[str, Tensor]:
    """The buffers with channels that a state dict leaves out (`persistent=False`): they are in the weights' order."""
    return {name: model.get_buffer(name) for name in sorted(unsaved_buffers(model) & space.layout.axes.keys())}


def channels_before(space: WidthSpace, channels: Mapping[str, Sequence[int]], order: IntArray) -> dict[str, list[int]]:
    """Channels of a model that was put `in_order`, as those of the model before."""
    found = {}
    for group, first in zip(space.groups, space.layout.first_units[:-1], strict=True):
        if group.name in channels:
            moved = _moved_positions(group.unit_of_channel + first, order)
            found[group.name] = sorted(moved[list(channels[group.name])].tolist())
    return found


def _moved_positions(pattern: IntArray, order: IntArray) -> IntArray:
    """Which old position stands at each new one: the k-th position of a unit takes the k-th of the unit put there."""
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
