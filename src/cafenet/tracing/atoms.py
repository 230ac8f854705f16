"""Channel identities: every position of every parameter dimension is an atom, and rules tie atoms together.

Smallest example: a convolution with 2 output channels (atoms 0, 1) is followed by a batch norm whose weight has the
atoms 2, 3. The batch norm's rule ties 0-2 and 1-3, so there are two units: {0, 2} and {1, 3}.

Ties are only collected while the model runs; one connected-components pass at the end turns them into units.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

AtomArray: TypeAlias = npt.NDArray[np.int64]
"""The atoms along one tensor dimension, one per position; FIXED marks a position that can never be dropped."""

DimLabel: TypeAlias = AtomArray | None
"""The content of one dimension: atoms, or None for a dimension of fixed size (batch, space, classes)."""

Labels: TypeAlias = tuple[DimLabel, ...]

FIXED = -1


@dataclass(frozen=True)
class Axis:
    """One dimension of one parameter or buffer, with the atoms `first .. first + size - 1`."""

    tensor: str
    """Name of the parameter or buffer."""
    dim: int
    """Dimension of the tensor."""
    first: int
    """Number of the first atom."""
    size: int
    """Number of atoms, which is the size of the dimension."""


@dataclass(frozen=True)
class Freeze:
    """A set of atoms that must all be kept, and the reason."""

    atoms: AtomArray
    """The atoms."""
    reason: str
    """Clause that users read, for example "is an output of the model"."""
    path: str
    """Path of the module in which it happened, or an empty text."""


@dataclass(frozen=True, eq=False)
class ScaleFold:
    """Positions of weights that make the queries of an attention, and the features of its heads."""

    atoms: AtomArray
    """The atoms that make queries, of the second trace."""
    features: AtomArray
    """The atoms of a head's features, of which the kept share counts."""


@dataclass
class Atoms:
    """Everything that the rules have recorded about channels during one or more runs."""

    axes: list[Axis] = field(default_factory=list)
    """All dimensions that have atoms, in the order of their atoms."""
    axis_labels: list[AtomArray] = field(default_factory=list)
    """The atoms of each axis."""
    num_atoms: int = 0
    """Number of atoms so far."""
    freezes: list[Freeze] = field(default_factory=list)
    """Atoms that must be kept, with reasons, in the order in which they were found."""
    produced: list[AtomArray] = field(default_factory=list)
    """Labels of the channels that layers create. Only these can be searched."""
    copies: dict[int, int] = field(default_factory=dict)
    """Number of output channels per position, by the first atom of the axis, if it is more than one."""
    mixed: list[AtomArray] = field(default_factory=list)
    """Labels across which values are normalised or reduced."""
    plural: list[AtomArray] = field(default_factory=list)
    """Labels of dimensions that must keep at least two positions."""
    parted: list[AtomArray] = field(default_factory=list)
    """Labels that the model's code treats as a separate part, of which something must be left."""
    first_of_sizes: int | None = None
    """First atom of the second trace, which follows the sizes of heads, or None without one (see `head_sizes`)."""
    scales: list[ScaleFold] = field(default_factory=list)
    """Queries that are multiplied to keep the scale of attention, wherever the check run found that they must be."""
    _left: list[AtomArray] = field(default_factory=list)
    _right: list[AtomArray] = field(default_factory=list)

    def new_axis(self, tensor: str, dim: int, size: int) -> AtomArray:
        """Creates the atoms of a parameter dimension.

        Args:
            tensor: Name of the parameter or buffer.
            dim: Dimension of the tensor.
            size: Size of the dimension.

        Returns:
            The new atoms.
        """
        self.axes.append(Axis(tensor, dim, self.num_atoms, size))
        atoms = np.arange(self.num_atoms, self.num_atoms + size, dtype=np.int64)
        self.num_atoms += size
        self.axis_labels.append(atoms)
        return atoms

    def tie(self, left: DimLabel, right: DimLabel, reason: str, path: str) -> None:
        """Keeps or drops the i-th atoms of two labels together. Atoms that are tied to a fixed position are frozen.

        Args:
            left: One label, or None for a dimension of fixed size.
            right: The other label, of the same length.
            reason: Reason of the freeze, if one of the labels is fixed.
            path: Path of the module in which it happens.
        """
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

    def untie(self, left: AtomArray, right: AtomArray) -> None:
        """Takes back the last tie of these two labels, which have no fixed positions.

        Args:
            left: One label.
            right: The other label.
        """
        number = next(n for n in reversed(range(len(self._left))) if self._left[n] is left and self._right[n] is right)
        del self._left[number], self._right[number]

    def freeze(self, label: DimLabel, reason: str, path: str) -> None:
        """Keeps all atoms of a label at every width.

        Args:
            label: The label. None has no atoms.
            reason: Reason that users read.
            path: Path of the module in which it happens.
        """
        if label is None:
            return
        atoms = label[label >= 0]
        if atoms.size:
            self.freezes.append(Freeze(atoms, reason, path))

    def mix(self, label: DimLabel) -> None:
        """Notes that values are normalised or reduced across these atoms, so that dropping one changes the others.

        Args:
            label: The label. None has no atoms.
        """
        if label is not None:
            self.mixed.append(label[label >= 0])

    def keep_two(self, label: DimLabel) -> None:
        """Notes that the model's code treats a dimension of size 1 differently, as `squeeze` does.

        Args:
            label: The label. None has no atoms.
        """
        if label is not None:
            self.plural.append(label[label >= 0])

    def part(self, label: AtomArray) -> None:
        """Notes that the model's code treats these atoms as a separate part, of which something must be left.

        Args:
            label: The atoms of the part.
        """
        self.parted.append(label[label >= 0])

    def produce(self, label: DimLabel, copies: int = 1) -> None:
        """Notes that a layer creates these channels. Only channels that a layer creates can be searched.

        Args:
            label: The label. None has no atoms.
            copies: Number of output channels per position. It is above 1 for the groups of a transposed convolution,
                which share a dimension.
        """
        if label is not None and label.size:
            self.produced.append(label[label >= 0])
            if copies > 1:
                self.copies[int(label[0])] = copies

    def is_produced(self, label: DimLabel) -> bool:
        """Whether a layer has created these channels so far.

        Args:
            label: The label. None has no atoms.

        Returns:
            True if some layer produced atoms of the same axis.
        """
        if label is None or not label.size:
            return False
        axis = self.axis_of(label)
        made = (each[0] for each in self.produced if each.size)
        return axis is not None and any(axis.first <= first < axis.first + axis.size for first in made)

    def axis_of(self, label: AtomArray) -> Axis | None:
        """Finds the dimension that a label's highest atom belongs to.

        Args:
            label: The label.

        Returns:
            The axis, or None if all positions of the label are fixed.
        """
        number = bisect_right(self.axes, int(label.max()), key=lambda axis: axis.first)
        return self.axes[number - 1] if number else None

    def owner(self, label: AtomArray) -> str:
        """Finds the parameter or buffer that a label's highest atom belongs to.

        Args:
            label: The label.

        Returns:
            Its name, or an empty text if all positions of the label are fixed.
        """
        axis = self.axis_of(label)
        return axis.tensor if axis else ""

    def components(self) -> npt.NDArray[np.int64]:
        """Computes the unit of every atom.

        Returns:
            One number per atom. Atoms with equal numbers are kept or dropped together.
        """
        if not self._left:
            return np.arange(self.num_atoms, dtype=np.int64)
        from scipy.sparse import csr_array  # takes long to import
        from scipy.sparse.csgraph import connected_components

        left, right = (np.concatenate(side).astype(np.int32) for side in (self._left, self._right))
        # The compressed form is built by hand: scipy's conversion takes twice as long as the search itself.
        order = np.argsort(left, kind="stable")
        starts = np.zeros(self.num_atoms + 1, dtype=np.int32)
        np.cumsum(np.bincount(left, minlength=self.num_atoms), out=starts[1:])
        graph = csr_array((np.ones(left.size), right[order], starts), shape=(self.num_atoms, self.num_atoms))
        components: npt.NDArray[np.int64] = connected_components(graph, directed=False)[1].astype(np.int64)
        return components
