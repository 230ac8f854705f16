"""Sizes of heads as groups beside heads: the model is traced twice, and the two traces are laid over each other.

A label names one atom at each position, so a trace follows one part of `view(n, t, 3, heads, size)`. The first trace
follows the heads, the second one the features of a head, of which the i-th ones of all heads go together. A position of
`qkv.weight` belongs to a head in the first trace and to a feature in the second, and is kept if both are.

Smallest example: 2 heads of 3 features are 6 rows. The first trace has the units [0 0 0 1 1 1], the second one
[0 1 2 0 1 2]. If head 1 and the features 0 and 2 are kept, the rows 3 and 5 remain.

Both traces meet the same ops in the same order. The atoms of the second are numbered after those of the first, and a
dimension that has channels in both gets a label with two rows. Of the second trace only the features of heads may vary,
and what the check run ties to them; everything else varies in the first one already.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from cafenet.tracing.atoms import AtomArray, Atoms, Axis, DimLabel, Freeze, Labels
from cafenet.tracing.calls import Record, Term
from cafenet.tracing.cuts import Cut, CutKey
from cafenet.tracing.grouping import Grouping
from cafenet.tracing.passes import Pass
from cafenet.tracing.recording import BROADCAST, AttributeLabel, Run, Scores
from cafenet.tracing.size_ties import SizeTie


def parts_of_sizes(cuts: Iterable[Cut]) -> dict[CutKey, int]:
    """Chooses the features of heads in every cut: the last part with more than one position.

    Args:
        cuts: The cuts of the first trace.

    Returns:
        The part of each cut.
    """
    return {cut.key: max(part for part, size in enumerate(cut.key[1]) if size > 1) for cut in cuts}


def laid_over(
    first: tuple[Atoms, Sequence[Pass]], second: tuple[Atoms, Sequence[Pass]], ties: Sequence[SizeTie]
) -> tuple[Atoms, list[Pass]] | None:
    """Lays the trace that follows sizes of heads over the one that follows heads.

    Args:
        first: The atoms and passes of the first trace.
        second: The atoms and passes of the second trace.
        ties: Ties that the check run has added to the first trace. They hold in the second one, too.

    Returns:
        The atoms and passes of both, or None if the traces do not meet the same ops or no size of a head may vary.
    """
    atoms, other = first[0], second[0]
    pairs = list(zip(first[1], second[1], strict=False))
    if len(first[1]) != len(second[1]) or not all(_are_alike(a.run, b.run) for a, b in pairs):
        return None
    features = [label for each in second[1] for label in each.run.features]
    if not features:
        return None
    over = _Overlay(atoms.num_atoms)
    both = _atoms_of_both(atoms, other, features, over)
    passes = [replace(a, run=_run_of_both(both, a.run, b.run, over)) for a, b in pairs]
    for tie in ties:
        label, source = over.twin(tie.label), over.twin(tie.source)
        if label is not None and source is not None:
            both.tie(label, source, "", "")
    return both, passes


def _are_alike(first: Run, second: Run) -> bool:
    return (
        len(first.terms) == len(second.terms)
        and all(len(a.sizes) == len(b.sizes) for a, b in zip(first.terms, second.terms, strict=True))
        and [(record.func, record.shapes) for record in first.records]
        == [(record.func, record.shapes) for record in second.records]
    )


class _Overlay:
    """Renumbers the labels of the second trace, and joins them with those of the first, each pair once.

    Args:
        num_atoms: Number of atoms of the first trace.
    """

    def __init__(self, num_atoms: int) -> None:
        self._offset = num_atoms
        self._twins: dict[int, AtomArray] = {}
        self._moved: dict[int, tuple[AtomArray, AtomArray]] = {}
        self._joined: dict[tuple[int, int], tuple[DimLabel, DimLabel, DimLabel]] = {}

    def move(self, label: AtomArray) -> AtomArray:
        """Renumbers the atoms of a label; fixed positions stay fixed."""
        if id(label) not in self._moved:
            self._moved[id(label)] = (label, np.where(label >= 0, label + self._offset, label))
        return self._moved[id(label)][1]

    def join(self, first: DimLabel, second: DimLabel) -> DimLabel:
        """Joins the labels that one dimension has in both traces."""
        key = (id(first), id(second))
        if key not in self._joined:  # the labels are held too, so that their ids are not given again
            self._joined[key] = (first, second, self._join(first, second))
        return self._joined[key][2]

    def _join(self, first: DimLabel, second: DimLabel) -> DimLabel:
        if first is BROADCAST or second is BROADCAST:
            return BROADCAST
        if second is None or first is None:
            return first if second is None else self.move(second)
        self._twins[id(first)] = self.move(second)
        return np.stack([first, self.move(second)])

    def twin(self, label: AtomArray) -> AtomArray | None:
        """Finds what the second trace has in a dimension with this label in the first."""
        return self._twins.get(id(label))

    def join_all(self, first: Labels, second: Labels) -> Labels:
        """Joins the labels of all dimensions of a tensor."""
        return tuple(self.join(a, b) for a, b in zip(first, second, strict=True))


def _atoms_of_both(atoms: Atoms, other: Atoms, features: Sequence[AtomArray], over: _Overlay) -> Atoms:
    component = other.components()
    may_vary = np.zeros(int(component.max()) + 1, dtype=bool)
    for label in features:
        may_vary[component[label[label >= 0]]] = True
    produced = [label[may_vary[component[label]]] for label in other.produced if label.size]
    offset = atoms.num_atoms
    for one, two in zip(atoms.axis_labels, other.axis_labels, strict=True):
        over.join(one, two)
    return Atoms(
        axes=atoms.axes + [Axis(axis.tensor, axis.dim, axis.first + offset, axis.size) for axis in other.axes],
        axis_labels=atoms.axis_labels + [over.move(label) for label in other.axis_labels],
        num_atoms=atoms.num_atoms + other.num_atoms,
        freezes=atoms.freezes + [Freeze(each.atoms + offset, each.reason, each.path) for each in other.freezes],
        produced=atoms.produced + [over.move(label) for label in produced if label.size],
        copies=atoms.copies | {first + offset: number for first, number in other.copies.items()},
        mixed=atoms.mixed + [over.move(label) for label in other.mixed],
        plural=atoms.plural + [over.move(label) for label in other.plural],
        parted=atoms.parted + [over.move(label) for label in other.parted],
        first_of_sizes=offset,
        _left=atoms._left + [over.move(label) for label in other._left],
        _right=atoms._right + [over.move(label) for label in other._right],
    )


def _run_of_both(atoms: Atoms, first: Run, second: Run, over: _Overlay) -> Run:
    return replace(
        first,
        atoms=atoms,
        terms=[_term(a, b, over) for a, b in zip(first.terms, second.terms, strict=True)],
        records=[_record(a, b, over) for a, b in zip(first.records, second.records, strict=True)],
        attributes=_attributes(first.attributes, second.attributes, over),
        scores=[_scores(each, over) for each in second.scores],
        has_attention=True,
    )


def _scores(scores: Scores, over: _Overlay) -> Scores:
    queries = None if scores.queries is None else over.move(scores.queries)
    return Scores(scores.path, over.move(scores.features), queries)


def _term(first: Term, second: Term, over: _Overlay) -> Term:
    sizes = [(size, over.join(a, b)) for (size, a), (_, b) in zip(first.sizes, second.sizes, strict=True)]
    return Term(first.constant, tuple(sizes))


def _record(first: Record, second: Record, over: _Overlay) -> Record:
    outputs = tuple(over.join_all(a, b) for a, b in zip(first.outputs, second.outputs, strict=True))
    moved = tuple(
        tuple(label if label is None or label is BROADCAST else over.move(label) for label in labels)
        for labels in second.inputs
    )
    return replace(first, inputs=first.inputs + moved, outputs=outputs, factors=second.factors)


def _attributes(
    first: Sequence[AttributeLabel], second: Sequence[AttributeLabel], over: _Overlay
) -> list[AttributeLabel]:
    """Joins the channels that an attribute counts in both traces: a number of heads in one, its features in both."""
    found = {each.key: each for each in reversed(first)}
    for each in second:
        known = found.get(each.key)
        label = over.join(known.label if known else None, each.label)
        assert label is not None
        found[each.key] = replace(known or each, label=label)
    return list(found.values())


def freeze_uneven(atoms: Atoms, grouping: Grouping) -> bool:
    """Freezes sizes of heads that are no grid with what the first trace lets vary in the same dimension.

    Only in a grid is the number of positions that are kept a product: every head must have every feature.

    Args:
        atoms: The atoms of both traces; the freezes are added to them.
        grouping: The groups of these atoms.

    Returns:
        Whether something was frozen.
    """
    assert atoms.first_of_sizes is not None
    firsts = {(axis.tensor, axis.dim): axis for axis in atoms.axes if axis.first < atoms.first_of_sizes}
    frozen = False
    for axis in (axis for axis in atoms.axes if axis.first >= atoms.first_of_sizes):
        one, two = (
            grouping.unit_of_atom[each.first : each.first + each.size] for each in (firsts[axis.tensor, axis.dim], axis)
        )
        if (one >= 0).any() and (two >= 0).any() and not _is_grid(one, two):
            reason = "is a size of heads in a dimension that also varies in another way"
            atoms.freeze(np.arange(axis.first, axis.first + axis.size)[two >= 0], reason, axis.tensor)
            frozen = True
    return frozen


def _is_grid(one: AtomArray, two: AtomArray) -> bool:
    """Whether all pairs of units come equally often: [0 0 1 1] and [0 1 0 1] do."""
    (first, rows), (second, columns) = (np.unique(each, return_inverse=True) for each in (one, two))
    counts = np.zeros((first.size, second.size), dtype=np.int64)
    np.add.at(counts, (rows, columns), 1)
    return bool((counts * one.size == np.outer(counts.sum(axis=1), counts.sum(axis=0))).all())
