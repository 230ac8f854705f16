"""Explanations for every parameter that is in no group: a frozen layer that it belongs to, or an entry of its own."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from torch import nn

from cafenet.space.layout import IntArray
from cafenet.space.width_group import Frozen
from cafenet.tracing.atoms import Atoms, Axis
from cafenet.tracing.grouping import Grouping


def explain_parameters(
    model: nn.Module, atoms: Atoms, grouping: Grouping, frozen: Sequence[Frozen], layer_of: Callable[[str], str]
) -> list[Frozen]:
    """Adds to the frozen layers the parameters that stay whole because of them, and new entries for all other
    parameters.

    Args:
        model: The traced model.
        atoms: Everything that the rules have recorded.
        grouping: The groups and units of the atoms.
        frozen: The frozen layers so far, which begin with the entries of `grouping.frozen` in the same order.
        layer_of: Function that gives the name under which users know a tensor.

    Returns:
        All frozen layers, with their parameters.
    """
    axes: dict[str, list[Axis]] = {name: [] for name, _ in model.named_parameters()}
    for axis in atoms.axes:
        if axis.tensor in axes:
            axes[axis.tensor].append(axis)
    entry_of_component = _entries(grouping)
    entries = list(frozen)
    numbers = {entry.name: number for number, entry in reversed(list(enumerate(entries)))}
    reason_of = _Reasons(atoms, grouping)
    explained: dict[int, list[str]] = {}
    for name, own in sorted(axes.items(), key=lambda item: layer_of(item[0]) == item[0]):  # layers before their biases
        if any((grouping.unit_of_atom[axis.first : axis.first + axis.size] >= 0).any() for axis in own):
            continue
        known = [entry_of_component[_components(grouping, axis)] for axis in own]
        found = np.concatenate([np.empty(0, dtype=np.int64), *known])
        layer = layer_of(name)
        if (found >= 0).any():
            number = int(found[found >= 0][0])
        elif layer in numbers or name.rpartition(".")[0] in numbers:
            number = numbers.get(layer, numbers.get(name.rpartition(".")[0], 0))
        else:
            shape = model.get_parameter(name).shape
            number = numbers[layer] = len(entries)
            entries.append(Frozen(layer, shape[0] if shape else 1, reason_of(own)))
        explained.setdefault(number, []).append(name)
    return [replace(entry, parameters=tuple(explained.get(number, ()))) for number, entry in enumerate(entries)]


def _components(grouping: Grouping, axis: Axis) -> IntArray:
    return grouping.component[axis.first : axis.first + axis.size]


def _entries(grouping: Grouping) -> IntArray:
    """For each component, the number of the first frozen layer that contains it, or -1."""
    entries = np.full(int(grouping.component.max(initial=-1)) + 1, -1, dtype=np.int64)
    for number in reversed(range(len(grouping.frozen))):
        entries[_components(grouping, grouping.frozen[number][0])] = number
    return entries


class _Reasons:
    """Reason why a parameter has no searchable channels: the first freeze of any of its positions."""

    def __init__(self, atoms: Atoms, grouping: Grouping) -> None:
        self._atoms, self._grouping = atoms, grouping

    def __call__(self, axes: Sequence[Axis]) -> str:
        if not axes:
            return "has a single value"
        numbers = np.concatenate([self._first_freezes[_components(self._grouping, axis)] for axis in axes])
        if not (numbers >= 0).any():
            return "has no dimension of channels that a layer creates"
        freeze = self._atoms.freezes[int(numbers[numbers >= 0].min())]
        return f"{freeze.reason} (in {freeze.path})" if freeze.path else freeze.reason

    @cached_property
    def _first_freezes(self) -> IntArray:
        """For each component, the number of the first freeze that contains it, or -1."""
        first = np.full(int(self._grouping.component.max(initial=-1)) + 1, -1, dtype=np.int64)
        for number in reversed(range(len(self._atoms.freezes))):
            first[self._grouping.component[self._atoms.freezes[number].atoms]] = number
        return first
