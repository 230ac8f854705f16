"""Rules of ops that cut, flatten, move, add and remove dimensions."""

import math
from collections.abc import Iterator

import numpy as np

from cafenet.tracing.atoms import AtomArray, DimLabel
from cafenet.tracing.calls import Call
from cafenet.tracing.cuts import Cut
from cafenet.tracing.recording import BROADCAST, Run, has_labels, raw_labels


def reshape(run: Run, call: Call) -> None:
    """Follows channels through `view`: blocks of dimensions with equal products are matched from the left. A dimension
    that was enlarged from size 1, as a mask is for every head, fits any size also when it is flattened with other
    dimensions.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    source, out = call.args[0], call.out
    if not has_labels(source):
        return
    labels, stored = run.labels(source), raw_labels(source)
    result: list[DimLabel] = [None] * out.ndim
    broadcast: list[int] = []
    for i0, i1, j0, j1 in _blocks(tuple(source.shape), tuple(out.shape)):
        merged = _merge(run, call, tuple(source.shape[i0:i1]), labels[i0:i1])
        result[j0:j1] = _split(run, call, merged, tuple(out.shape[j0:j1]))
        if merged is None and any(label is BROADCAST for label in stored[i0:i1]):
            broadcast += [dim for dim in range(j0, j1) if out.shape[dim] > 1]
    _follow_sizes(run, call, result)
    run.label(out, [BROADCAST if dim in broadcast else label for dim, label in enumerate(result)])


def _follow_sizes(run: Run, call: Call, labels: list[DimLabel]) -> None:
    """Lets sizes that the code took from attributes follow the channels that they count."""
    sizes, first = run.notes.sizes("view", "reshape"), 0
    if not sizes:
        first, sizes = (asked := run.notes.sizes("unflatten") or (0,))[0] % max(call.args[0].ndim, 1), asked[1:]
    elif len(sizes) != len(labels):
        return
    for size, label in zip(sizes, labels[first:], strict=False):
        run.follow(size, label, call)


def _blocks(old: tuple[int, ...], new: tuple[int, ...]) -> Iterator[tuple[int, int, int, int]]:
    """Yields ranges of old and new dimensions with equal products: (2, 6) -> (2, 3, 2) gives 2|2 and 6|3x2."""
    i = j = 0
    while i < len(old) or j < len(new):
        i0, j0, left, right = i, j, 1, 1
        if i < len(old):
            left, i = old[i], i + 1
        if j < len(new):
            right, j = new[j], j + 1
        while left != right:
            if left < right:
                left, i = left * old[i], i + 1
            else:
                right, j = right * new[j], j + 1
        yield i0, i, j0, j


def _merge(run: Run, call: Call, sizes: tuple[int, ...], labels: tuple[DimLabel, ...]) -> DimLabel:
    """The label of several dimensions that are flattened into one; a flattened channel repeats its atom."""
    labelled = [dim for dim, label in enumerate(labels) if label is not None]
    if not labelled:
        return None
    dim = _varying(run, sizes, labels, labelled)
    for other in labelled:
        if other != dim:
            run.freeze(
                labels[other],
                f"is flattened together with other channels in {call.name}, of which one kind can vary",
                call,
            )
    if math.prod(sizes) == sizes[dim]:
        return labels[dim]
    shape = [1] * len(sizes)
    shape[dim] = sizes[dim]
    label = labels[dim]
    assert label is not None
    return np.broadcast_to(label.reshape(shape), sizes).reshape(-1)


def _varying(run: Run, sizes: tuple[int, ...], labels: tuple[DimLabel, ...], labelled: list[int]) -> int:
    """Chooses which of several dimensions may vary if they are flattened into one, because a flattened position has
    one atom.

    Channels that a layer has created come before other dimensions of a parameter. Inside one parameter the first of
    them is chosen, as in (out, in, kernel), and otherwise the widest.
    """
    if len(labelled) == 1:
        return labelled[0]
    made = [dim for dim in labelled if run.atoms.is_produced(labels[dim])] or labelled
    if len({run.atoms.owner(label) for label in labels if label is not None}) == 1:
        return made[0]
    return max(made, key=lambda dim: sizes[dim])


def _split(run: Run, call: Call, merged: DimLabel, sizes: tuple[int, ...]) -> list[DimLabel]:
    """Labels of the dimensions into which one dimension is cut: one of them varies, the others keep their size."""
    result: list[DimLabel] = [None] * len(sizes)
    wide = [dim for dim, size in enumerate(sizes) if size > 1]
    if merged is None or not wide:
        return result
    if len(wide) == 1:
        result[wide[0]] = merged
        return result
    grid = merged.reshape(sizes)
    for dim in wide:
        lane = _lane(grid, dim)
        if (grid == _along(lane, dim, len(sizes))).all():
            result[dim] = lane
            return result
    # No dimension explains the label alone: tie across all but the largest (the last of equals), as a channel
    # shuffle needs it. A model for which this is the wrong choice is found out by the check run.
    # Attention finds out while it is traced (see `cuts`): there the heads vary, and their size does not.
    cut = (call.path, sizes)
    dim = run.chosen_parts.get(cut, max(wide, key=lambda d: (sizes[d], d)))
    lane = _lane(grid, dim)
    run.cuts.append(Cut(cut, dim, lane))
    run.tie(np.broadcast_to(_along(lane, dim, len(sizes)), sizes).reshape(-1), merged, call)
    result[dim] = lane
    return result


def _lane(grid: AtomArray, dim: int) -> AtomArray:
    index: list[int | slice] = [0] * grid.ndim
    index[dim] = slice(None)
    return grid[tuple(index)]


def _along(lane: AtomArray, dim: int, ndim: int) -> AtomArray:
    shape = [1] * ndim
    shape[dim] = lane.size
    return lane.reshape(shape)


def permute(run: Run, call: Call) -> None:
    """Moves labels with their dimensions.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels = raw_labels(call.args[0])
    run.label(call.out, [labels[dim] for dim in call.arg("dims")])


def transpose(run: Run, call: Call) -> None:
    """Swaps the labels of two dimensions.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels = list(raw_labels(call.args[0]))
    if len(labels) > 1:
        first, second = (call.arg("dim0"), call.arg("dim1")) if len(call.args) > 1 else (0, 1)
        labels[first], labels[second] = labels[second], labels[first]
    run.label(call.out, labels)


def unsqueeze(run: Run, call: Call) -> None:
    """Inserts a dimension of size 1.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels, dim = list(raw_labels(call.args[0])), call.arg("dim")
    labels.insert(dim if dim >= 0 else dim + len(labels) + 1, None)
    run.label(call.out, labels)


def squeeze(run: Run, call: Call) -> None:
    """Removes dimensions of size 1; a dimension of channels that is named must keep at least two of them.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    source, out = call.args[0], call.out
    labels = raw_labels(source)
    asked = call.args[1] if len(call.args) > 1 else range(source.ndim)
    dims = {dim % source.ndim for dim in ([asked] if isinstance(asked, int) else asked)} if source.ndim else set()
    for dim in dims:
        run.atoms.keep_two(labels[dim])
    run.label(out, [label for dim, label in enumerate(labels) if dim not in dims or source.shape[dim] > 1])


def expand(run: Run, call: Call) -> None:
    """Labels dimensions that are enlarged from size 1, or added, as BROADCAST, so that they fit any dimension they
    meet.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    source, out = call.args[0], call.out
    offset = out.ndim - source.ndim
    stored = raw_labels(source)
    result: list[DimLabel] = [BROADCAST if size > 1 else None for size in out.shape[:offset]]
    for dim, label in enumerate(stored):
        result.append(BROADCAST if source.shape[dim] == 1 < out.shape[offset + dim] else label)
    run.label(out, result)


def restride(run: Run, call: Call) -> None:
    """Passes labels on if only the memory format changes; any other use of strides freezes all channels.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    source, out = call.args[0], call.out
    if tuple(call.arg("size")) == tuple(out.shape) == tuple(source.shape) and not call.arg("storage_offset"):
        run.label(out, raw_labels(source))
        return
    for label in run.labels(source):
        run.freeze(label, f"is read through strides in {call.name}", call)


def fresh(run: Run, call: Call) -> None:
    """Follows `zeros(size)`, whose values are all alike, so that it fits any dimension; the check run verifies its
    size.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    run.label(call.out, [BROADCAST if size > 1 else None for size in call.out.shape])


def view_as_real(run: Run, call: Call) -> None:
    """Follows complex numbers that become pairs in a new last dimension.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    run.label(call.out, (*raw_labels(call.args[0]), None))


def view_as_complex(run: Run, call: Call) -> None:
    """Follows pairs in the last dimension that become complex numbers.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels = run.labels(call.args[0])
    run.freeze(labels[-1], f"is a real or imaginary part in {call.name}", call)
    run.label(call.out, labels[:-1])
