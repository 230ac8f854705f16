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

from cafenet.calling import copy_of, named_tensors, unwrap
from cafenet.layout import IntArray, Layout
from cafenet.space import WidthSpace


def unit_importance(space: WidthSpace, model: nn.Module | None = None) -> list[npt.NDArray[np.float64]]:
    """Per group, how much each unit weighs: the mean absolute weight in each slot, relative to the slot's mean."""
    layout = space.layout
    total = np.zeros(layout.num_units)
    for name, parameter in unwrap(space.model if model is None else model).named_parameters():
        if name.endswith("bias"):
            continue
        for dim, pattern in layout.axes.get(name, {}).items():
            others = [d for d in range(parameter.ndim) if d != dim]
            size = parameter.detach().abs().double()
            weight = (size.mean(dim=others) if others else size).cpu().numpy()
            units = layout.patterns[pattern]
            varying = units >= 0
            count = np.bincount(units[varying], minlength=layout.num_units)
            summed = np.bincount(units[varying], weights=weight[varying], minlength=layout.num_units)
            total += summed / np.maximum(count, 1) / max(float(weight.mean()), 1e-12)
    edges = layout.first_units
    return [total[edges[number] : edges[number + 1]] for number in range(len(space.groups))]


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
