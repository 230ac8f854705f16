"""Width groups from tied atoms: units with the same membership form a group, in channel order.

Smallest example: conv(3 -> 4), batch norm, conv(4 -> 8, feeding the output). The first convolution's four output
channels are four units. Each has one position in conv1.weight[0], in each batch-norm tensor and in conv2.weight[1]: one
width group of 4 channels. The eight outputs are frozen.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cafenet.tracing.atoms import Atoms, Axis

IntArray = npt.NDArray[np.int64]
_Number = TypeVar("_Number", np.int64, np.uint64)


@dataclass(frozen=True, eq=False)
class Group:
    """A set of interchangeable units, listed in the order of their first channel."""

    axis: Axis
    """The dimension of the parameter that creates the channels."""
    positions: IntArray
    """Positions of the group's channels in that dimension."""
    units: IntArray
    """Numbers of the group's units."""
    mixes: bool
    """Whether values are normalised or reduced across the channels."""
    min_units: int
    """Smallest number of units that must be kept."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """The meaning of a run: its groups, its units, and the reasons why the other channels are frozen."""

    groups: tuple[Group, ...]
    """All width groups, in the order in which the model creates their channels."""
    unit_of_atom: IntArray
    """Unit of every atom, or -1 if the atom is never dropped."""
    group_of_unit: IntArray
    """Number of the group of every unit."""
    frozen: tuple[tuple[Axis, str], ...]
    """Dimensions that create channels which are not searchable, with the reasons."""
    component: IntArray
    """Connected component of every atom, searchable or not."""


def group_units(atoms: Atoms) -> Grouping:
    """Finds the searchable units and sorts them into width groups.

    Args:
        atoms: Everything that the rules have recorded.

    Returns:
        The groups, and the unit of every atom.
    """
    component = atoms.components()
    num_components = int(component.max()) + 1 if component.size else 0
    reasons = _first_reason(atoms, component, num_components)
    searchable = np.zeros(num_components, dtype=bool)
    for label in atoms.produced:
        searchable[component[label]] = True
    searchable &= reasons < 0
    axis_of_atom = np.repeat(np.arange(len(atoms.axes)), [axis.size for axis in atoms.axes])
    signature = _signatures(component, axis_of_atom, num_components)
    for label, mark in zip(atoms.parted, _marks(len(atoms.parted), seed=1), strict=True):
        np.add.at(signature, component[label], mark)
    mixed, plural = np.zeros((2, num_components), dtype=bool)
    for marked, labels in ((mixed, atoms.mixed), (plural, atoms.plural)):
        for label in labels:
            marked[component[label]] = True

    groups: list[Group] = []
    unit_of_component = np.full(num_components, -1, dtype=np.int64)
    group_of_unit: list[IntArray] = []
    num_units = 0
    produced = _produced_axes(atoms, axis_of_atom)
    for axis in produced:
        own = component[axis.first : axis.first + axis.size]
        fresh = searchable[own] & (unit_of_component[own] < 0)
        for mark in _in_order(signature[own[fresh]]):
            positions = np.flatnonzero(fresh & (signature[own] == mark))
            members = _in_order(own[positions])
            if members.size == 1:
                continue
            units = np.arange(num_units, num_units + members.size, dtype=np.int64)
            unit_of_component[members] = units
            group_of_unit.append(np.full(members.size, len(groups), dtype=np.int64))
            min_units = 2 if plural[members].any() else 1
            groups.append(Group(axis, positions, units, bool(mixed[members].any()), min_units))
            num_units += members.size
    return Grouping(
        tuple(groups),
        unit_of_component[component],
        np.concatenate(group_of_unit) if group_of_unit else np.empty(0, dtype=np.int64),
        tuple(_frozen(atoms, produced, component, reasons, unit_of_component)),
        component,
    )


def _first_reason(atoms: Atoms, component: IntArray, num_components: int) -> IntArray:
    """For each component, the number of the first freeze that contains it, or -1."""
    reasons = np.full(num_components, -1, dtype=np.int64)
    for number in reversed(range(len(atoms.freezes))):
        reasons[component[atoms.freezes[number].atoms]] = number
    return reasons


def _signatures(component: IntArray, axis_of_atom: IntArray, num_components: int) -> npt.NDArray[np.uint64]:
    """Hashes the number of positions that each component has in each axis; equal hashes mean equal membership."""
    marks = _marks(int(axis_of_atom.max(initial=0)) + 1, seed=0)
    signature = np.zeros(num_components, dtype=np.uint64)
    np.add.at(signature, component, marks[axis_of_atom])
    return signature


def _marks(number: int, seed: int) -> npt.NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(1, 2**64 - 1, size=number, dtype=np.uint64)


def _produced_axes(atoms: Atoms, axis_of_atom: IntArray) -> list[Axis]:
    """The axes whose channels a layer creates, in the order of execution."""
    numbers = dict.fromkeys(int(axis_of_atom[label[0]]) for label in atoms.produced if label.size)
    return [atoms.axes[number] for number in numbers]


def _in_order(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """Distinct values in the order of their first appearance."""
    _, first = np.unique(values, return_index=True)
    ordered: npt.NDArray[_Number] = values[np.sort(first)]
    return ordered


def _frozen(
    atoms: Atoms, produced: list[Axis], component: IntArray, reasons: IntArray, unit_of_component: IntArray
) -> list[tuple[Axis, str]]:
    frozen = []
    for axis in produced:
        own = component[axis.first : axis.first + axis.size]
        kept = own[unit_of_component[own] < 0]
        if not kept.size:
            continue
        numbers = reasons[kept]
        if (numbers >= 0).any():
            freeze = atoms.freezes[int(numbers[numbers >= 0].min())]
            reason = f"{freeze.reason} (in {freeze.path})" if freeze.path else freeze.reason
        else:
            reason = "all its channels are tied into one unit"
        frozen.append((axis, reason))
    return frozen
