"""Channel identities: every position of every parameter dimension is an atom, and rules tie atoms together.

Smallest example: a convolution with 2 output channels (atoms 0, 1) followed by a batch norm whose weight has the
atoms 2, 3. The batch norm's rule ties 0-2 and 1-3, so there are two units: {0, 2} and {1, 3}.

Ties are only collected while the model runs; one connected-components pass at the end turns them into units.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

AtomArray: TypeAlias = npt.NDArray[np.int64]
"""The atoms along one tensor dimension, one a position; FIXED where a position can never be dropped."""

DimLabel: TypeAlias = AtomArray | None
"""What one dimension carries: atoms, or None for a dimension of fixed size (batch, space, classes)."""

Labels: TypeAlias = tuple[DimLabel, ...]

FIXED = -1


@dataclass(frozen=True)
class Axis:
    """One dimension of one parameter or buffer, holding the atoms `first .. first + size - 1`."""

    tensor: str
    dim: int
    first: int
    size: int


@dataclass(frozen=True)
class Freeze:
    """A set of atoms that must all be kept, and why."""

    atoms: AtomArray
    reason: str
    path: str


@dataclass
class Atoms:
    """Everything that the rules have said about channels during one or more runs."""

    axes: list[Axis] = field(default_factory=list)
    axis_labels: list[AtomArray] = field(default_factory=list)
    num_atoms: int = 0
    freezes: list[Freeze] = field(default_factory=list)
    produced: list[AtomArray] = field(default_factory=list)
    copies: dict[int, int] = field(default_factory=dict)
    """Output channels per position, by the first atom of the axis, where it is not one."""
    mixed: list[AtomArray] = field(default_factory=list)
    plural: list[AtomArray] = field(default_factory=list)
    parted: list[AtomArray] = field(default_factory=list)
    _left: list[AtomArray] = field(default_factory=list)
    _right: list[AtomArray] = field(default_factory=list)

    def new_axis(self, tensor: str, dim: int, size: int) -> AtomArray:
        """Give the positions of a parameter dimension their identities."""
        self.axes.append(Axis(tensor, dim, self.num_atoms, size))
        atoms = np.arange(self.num_atoms, self.num_atoms + size, dtype=np.int64)
        self.num_atoms += size
        self.axis_labels.append(atoms)
        return atoms

    def tie(self, left: DimLabel, right: DimLabel, reason: str, path: str) -> None:
        """Keep or drop the i-th atoms of both together; what meets a fixed position is frozen for `reason`."""
        if left is right:
            return
        if left is None or right is None:
            self.freeze(right if left is None else left, reason, path)
            return
        if (left < 0).any() or (right < 0).any():
            self.freeze(right[left == FIXED], reason, path)
            self.freeze(left[right == FIXED], reason, path)
            both = (left >= 0) & (right >= 0)
            left, right = left[both], right[both]
        self._left.append(left)
        self._right.append(right)

    def freeze(self, label: DimLabel, reason: str, path: str) -> None:
        """Keep all of these atoms for ever."""
        if label is None:
            return
        atoms = label[label >= 0]
        if atoms.size:
            self.freezes.append(Freeze(atoms, reason, path))

    def mix(self, label: DimLabel) -> None:
        """Note that values are normalised or reduced across these atoms, so dropping one changes the others."""
        if label is not None:
            self.mixed.append(label[label >= 0])

    def keep_two(self, label: DimLabel) -> None:
        """Note that the model's code takes a dimension of size 1 for something else, as `squeeze` does."""
        if label is not None:
            self.plural.append(label[label >= 0])

    def part(self, label: AtomArray) -> None:
        """Note that the model's code takes these atoms for a part of its own, of which something must be left."""
        self.parted.append(label[label >= 0])

    def produce(self, label: DimLabel, copies: int = 1) -> None:
        """Note that a layer creates these channels: only what is produced can be searched.

        copies: how many output channels one position makes (the groups of a transposed convolution share a dimension).
        """
        if label is not None and label.size:
            self.produced.append(label[label >= 0])
            if copies > 1:
                self.copies[int(label[0])] = copies

    def is_produced(self, label: DimLabel) -> bool:
        """Whether a layer has created these channels so far."""
        if label is None or not label.size:
            return False
        axis = self.axis_of(label)
        made = (each[0] for each in self.produced if each.size)
        return axis is not None and any(axis.first <= first < axis.first + axis.size for first in made)

    def axis_of(self, label: AtomArray) -> Axis | None:
        """The dimension that a label's highest atom belongs to (None if all its positions are fixed)."""
        number = bisect_right(self.axes, int(label.max()), key=lambda axis: axis.first)
        return self.axes[number - 1] if number else None

    def owner(self, label: AtomArray) -> str:
        """The parameter or buffer that a label's highest atom belongs to ('' if all its positions are fixed)."""
        axis = self.axis_of(label)
        return axis.tensor if axis else ""

    def components(self) -> npt.NDArray[np.int64]:
        """The unit of every atom: atoms with equal numbers are kept or dropped together."""
        if not self._left:
            return np.arange(self.num_atoms, dtype=np.int64)
        from scipy.sparse import csr_array  # takes long to import
        from scipy.sparse.csgraph import connected_components

        left, right = (np.concatenate(side).astype(np.int32) for side in (self._left, self._right))
        # The compressed form by hand: scipy's own way to it takes twice as long as the search itself.
        order = np.argsort(left, kind="stable")
        starts = np.zeros(self.num_atoms + 1, dtype=np.int32)
        np.cumsum(np.bincount(left, minlength=self.num_atoms), out=starts[1:])
        graph = csr_array((np.ones(left.size), right[order], starts), shape=(self.num_atoms, self.num_atoms))
        components: npt.NDArray[np.int64] = connected_components(graph, directed=False)[1].astype(np.int64)
        return components
