"""The record of one run of the model: what rules read and write."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from cafenet.tracing.atoms import AtomArray, Atoms, DimLabel, Labels
from cafenet.tracing.attribute_sizes import SizeNotes, Source
from cafenet.tracing.calls import Call, Record, Term
from cafenet.tracing.cuts import Cut, CutKey

LABELS = "_cafenet_labels"
"""Name of the attribute that holds the labels of a tensor."""

BROADCAST: AtomArray = np.empty(0, dtype=np.int64)
"""Label of a dimension that `expand` enlarged from size 1: it fits any dimension that it meets in an elementwise op."""


Rule: TypeAlias = "Callable[[Run, Call], None]"
"""A rule reads the labels of a call's inputs, ties or freezes channels, and labels the outputs."""


@dataclass(frozen=True, eq=False)
class AttributeLabel:
    """A module attribute that counts atoms and follows from no parameter (a layer norm without weights)."""

    path: str
    """Path of the module."""
    attribute: str
    """Name of the attribute."""
    label: AtomArray
    """The channels that the attribute counts."""
    per_element: bool = False
    """Whether the attribute is a tuple of one number, as `normalized_shape` is."""
    source: Source | None = None
    """The attribute that the model's code was seen to take a size from, which may be an entry of a list."""

    @property
    def key(self) -> tuple[str, str, int | None]:
        """Path, attribute name and index in a list (None for a single number), which identify the attribute."""
        return (self.path, self.attribute, self.source.index if self.source else None)


@dataclass(frozen=True, eq=False)
class Scores:
    """One product of queries and keys."""

    path: str
    """Path of the running module."""
    features: AtomArray
    """The features of a head, over which the product sums."""
    queries: AtomArray | None
    """The atoms of the weights that make the queries (or the keys, if only these are known), or None if neither are."""


@dataclass
class Run:
    """The state that rules read and write."""

    atoms: Atoms
    """Everything that the rules have recorded about channels."""
    is_priced: bool = True
    """Whether every product must have a price. This holds in eval mode, for which FLOPs are counted."""
    terms: list[Term] = field(default_factory=list)
    """The multiply-adds of all ops so far."""
    records: list[Record] = field(default_factory=list)
    """All ops so far, for the check run."""
    attributes: list[AttributeLabel] = field(default_factory=list)
    """Module attributes that follow channels."""
    seen: set[int] = field(default_factory=set)
    """`id` of every tensor that an op has read. A later tensor may get the id of a freed one."""
    numbers: list[tuple[Tensor, AtomArray, str, str]] = field(default_factory=list)
    """Tensors that hold positions of channels, each with the label, the reason and the path of the freeze. If an op
    reads such a tensor, it tells these channels apart.
    """
    output_paths: tuple[str, ...] = ()
    """Parts of the model's output that keep their sizes. An empty tuple means all parts."""
    output_shapes: list[tuple[int, ...]] = field(default_factory=list)
    """Shapes of these parts."""
    draws: bool = False
    """Whether the forward may read random numbers that were drawn, and so take another way the next time."""
    notes: SizeNotes = field(default_factory=SizeNotes)
    """Sizes that the model's code took from attributes."""
    followed: dict[Source, AtomArray] = field(default_factory=dict)
    """Channels that are counted by attributes from which the model's code took sizes."""
    chosen_parts: Mapping[CutKey, int] = field(default_factory=dict)
    """The part that varies of dimensions that a view cuts, if an earlier trace found that the usual one cannot."""
    cuts: list[Cut] = field(default_factory=list)
    """All views so far that cut a labelled dimension in several, with the part that varies."""
    unfit: list[AtomArray] = field(default_factory=list)
    """Labels that stay whole because of their use, so that another part of their cut might vary (heads)."""
    follows_sizes: bool = False
    """Whether the features of heads are followed instead of heads (see `head_sizes`)."""
    features: list[AtomArray] = field(default_factory=list)
    """Labels of the features of heads that the products of attention let vary."""
    scores: list[Scores] = field(default_factory=list)
    """The products of queries and keys whose features may vary."""
    has_attention: bool = False
    """Whether a product of two activations was seen, which is the only reason to look for other parts of cuts."""

    def labels(self, tensor: Tensor) -> Labels:
        """Returns the label of each dimension of a tensor.

        Args:
            tensor: A tensor of the watched run.

        Returns:
            One label per dimension, which is atoms, or None for a dimension of fixed size.
        """
        return tuple(None if label is BROADCAST else label for label in raw_labels(tensor))

    def label(self, tensor: Tensor, labels: Sequence[DimLabel]) -> None:
        """Sets the labels of a result.

        Args:
            tensor: A result of the op.
            labels: One label per dimension.
        """
        if any(label is not None for label in labels):
            setattr(tensor, LABELS, tuple(labels))
        elif hasattr(tensor, LABELS):
            delattr(tensor, LABELS)

    def tie(self, left: DimLabel, right: DimLabel, call: Call) -> None:
        """Keeps or drops the i-th channels of two labels together.

        Args:
            left: One label, or None for a dimension of fixed size, which freezes the other.
            right: The other label, of the same length.
            call: The call of the op.
        """
        self.atoms.tie(left, right, f"meets a dimension of fixed size in {call.name}", call.path)

    def freeze(self, label: DimLabel, reason: str, call: Call) -> None:
        """Keeps all channels of a label.

        Args:
            label: The label. None has no channels.
            reason: Clause that the user will read, for example "is indexed by a tensor".
            call: The call of the op.
        """
        self.atoms.freeze(label, reason, call.path)

    def tell_apart(self, numbers: Tensor, label: AtomArray, call: Call) -> None:
        """Keeps all channels of a label if anything reads `numbers`.

        Args:
            numbers: A result of the op that holds positions of the channels.
            label: The channels.
            call: The call of the op.
        """
        self.seen.discard(id(numbers))  # the id may be that of a freed tensor; the list keeps this tensor alive
        self.numbers.append((numbers, label, f"is told apart by position in {call.name}", call.path))

    def follow(self, size: Any, label: DimLabel, call: Call) -> bool:
        """Lets the attribute from which a size was read count the channels of a label.

        An attribute is one number, however often it is used. Channels that it counts in two places are therefore tied.

        Args:
            size: The size that the op was given.
            label: The channels that the size counts.
            call: The call of the op.

        Returns:
            False if the size was not read from an attribute.
        """
        source = self.notes.source(size)
        if source is None:
            return False
        if label is not None:
            if source not in self.followed:
                self.followed[source] = label
                self.atoms.part(label)
                self.attributes.append(AttributeLabel(source.path, source.attribute, label, source=source))
            else:
                self.tie(self.followed[source], label, call)
        return True

    def settle_attributes(self) -> None:
        """Freezes the channels that an attribute counts if the model also computes values with the attribute."""
        for attribute in self.attributes:
            if attribute.source in self.notes.computed_with:
                reason = f"is counted by {attribute.source}, with which the code also computes values"
                self.atoms.freeze(attribute.label, reason, attribute.path)

    def keep_whole(self, label: DimLabel, reason: str, call: Call) -> None:
        """Keeps all channels of a label, and notes that another part of the same cut might vary instead.

        Args:
            label: The label. None has no channels.
            reason: Clause that the user will read.
            call: The call of the op.
        """
        if label is not None:
            self.unfit.append(label)
            self.freeze(label, reason, call)

    def cost(self, constant: int, *sizes: tuple[int, DimLabel]) -> None:
        """Charges multiply-adds: the constant times the product of the sizes.

        Args:
            constant: Product of all factors that do not vary.
            *sizes: Size and label of each dimension that is a factor.
        """
        self.terms.append(Term(constant, sizes))


def raw_labels(tensor: Tensor) -> Labels:
    """Returns the labels as they are stored, including BROADCAST. An in-place reshape (`squeeze_`) makes them void.

    Args:
        tensor: A tensor of the watched run.

    Returns:
        One label per dimension.
    """
    labels: Labels | None = getattr(tensor, LABELS, None)
    return labels if labels is not None and len(labels) == tensor.ndim else (None,) * tensor.ndim


def has_labels(tensor: Tensor) -> bool:
    """Whether any dimension of the tensor carries channels.

    Args:
        tensor: A tensor of the watched run.

    Returns:
        True if a label is stored on the tensor.
    """
    return hasattr(tensor, LABELS)


def tensors_in(values: Sequence[Any]) -> Iterator[Tensor]:
    """Yields all tensors in nested lists and tuples.

    Args:
        values: Arguments or results of an op.

    Yields:
        The tensors in order.
    """
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)
