"""Rules of ops that move, cut and join dimensions without touching values."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from cafenet.tracing.atoms import FIXED, AtomArray, DimLabel
from cafenet.tracing.cuts import Cut
from cafenet.tracing.recording import BROADCAST, Call, Run, has_labels, raw_labels
from cafenet.tracing.rules.elementwise import expect_no_write_through_view, join_dim, joined, tie_parts


def reshape(run: Run, call: Call) -> None:
    """Follows channels through `view`: blocks of dimensions with equal products are matched from the left. What was
    enlarged from size 1, as a mask is for every head, fits any size also when it is flattened with other dimensions.

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


def repeat(run: Run, call: Call) -> None:
    """Repeats the label of a tiled dimension: a repeated channel is the same atom several times.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    source, out = call.args[0], call.out
    offset = out.ndim - source.ndim
    labels = (None,) * offset + run.labels(source)
    repeats = call.arg("repeats")
    run.label(
        out, [None if label is None else np.tile(label, times) for label, times in zip(labels, repeats, strict=True)]
    )


def cat(run: Run, call: Call) -> None:
    """Concatenates the labels along the dimension, and ties them along all others.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    tensors: list[Tensor] = [tensor for tensor in call.arg("tensors") if tensor.ndim == call.out.ndim]
    if not any(has_labels(tensor) for tensor in tensors):
        return
    dim = call.arg("dim") % call.out.ndim
    parts = [run.labels(tensor) for tensor in tensors]
    result: list[DimLabel] = []
    for d in range(call.out.ndim):
        column = [part[d] for part in parts]
        if all(label is None for label in column):
            result.append(None)
        elif d == dim:
            result.append(
                np.concatenate([_whole(tensor, label, d) for tensor, label in zip(tensors, column, strict=True)])
            )
        else:
            for label in column[1:]:
                run.tie(column[0], label, call)
            result.append(None if any(label is None for label in column) else column[0])
    run.label(call.out, result)


def _whole(tensor: Tensor, label: DimLabel, dim: int) -> AtomArray:
    return np.full(tensor.shape[dim], FIXED, dtype=np.int64) if label is None else label


def stack(run: Run, call: Call) -> None:
    """Ties the labels of all tensors, which are joined along a new dimension of fixed size.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    tensors = call.arg("tensors")
    labels = list(joined(run, call, tensors, tensors[0]))
    dim = call.arg("dim")
    labels.insert(dim if dim >= 0 else dim + len(labels) + 1, None)
    run.label(call.out, labels)


def split(run: Run, call: Call) -> None:
    """Cuts a label along a dimension.

    A part whose size the code took from an attribute varies by itself, together with the attribute. The i-th channels
    of all other parts are tied, so that the parts keep their ratio.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels = list(run.labels(call.args[0]))
    dim = call.args[2] if len(call.args) > 2 else call.kwargs.get("dim", 0)
    sizes = [out.shape[dim] for out in call.out]
    parts = [None] * len(sizes) if labels[dim] is None else _parts(run, call, labels[dim], sizes)
    for out, part in zip(call.out, parts, strict=True):
        labels[dim] = part
        run.label(out, labels)


def _parts(run: Run, call: Call, label: AtomArray, sizes: list[int]) -> list[AtomArray]:
    asked = run.notes.sizes("split", "split_with_sizes", "unsafe_split")
    parts = np.split(label, np.cumsum(sizes)[:-1])
    if call.func.overloadpacket.__name__ == "split_with_sizes" and list(asked[: len(sizes)]) == sizes:
        followed = [run.follow(size, part, call) for size, part in zip(asked, parts, strict=False)]
    else:
        followed = [False] * len(sizes)
    others = [number for number, is_followed in enumerate(followed) if not is_followed]
    if others:
        unit = math.gcd(*(sizes[number] for number in others))
        first = tie_parts(run, call, np.concatenate([parts[number] for number in others]), unit)
        assert first is not None
        for number in others:
            parts[number] = np.tile(first, sizes[number] // unit)
        if len(others) == len(sizes) and asked and unit == sizes[0]:
            run.follow(asked[0], first, call)
    return parts


def slice_dim(run: Run, call: Call) -> None:
    """Follows a slice: a whole slice changes nothing, a part ties the parts of its size like `chunk`, a step ties
    neighbours.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    source, out = call.args[0], call.out
    labels = list(run.labels(source))
    dim = call.arg("dim")
    label = labels[dim]
    if label is not None and out.shape[dim] != source.shape[dim]:
        start = _position(call.arg("start"), label.size)
        labels[dim] = _sliced(run, call, label, start, out.shape[dim], call.arg("step"))
    run.label(out, labels)


def _sliced(run: Run, call: Call, label: AtomArray, start: int, length: int, step: int) -> DimLabel:
    if step != 1 or length == 0:
        if start >= step or label.size % step or length != label.size // step:
            run.freeze(label, f"is indexed by position in {call.name}", call)
            return None
        run.tie(label[::step].repeat(step), label, call)
        return label[start::step]
    stop = start + length
    if _follow_ends(run, call, label, start, stop):
        return label[start:stop]
    part = math.gcd(start, length, label.size)
    first = tie_parts(run, call, label, part)
    assert first is not None
    return np.tile(first, length // part)


def _follow_ends(run: Run, call: Call, label: AtomArray, start: int, stop: int) -> bool:
    """Whether both ends of a slice are the tensor's own or come from attributes, which then count the channels
    before them.
    """
    asked = run.notes.sizes("__getitem__", "__setitem__", "narrow")
    ends = {end: [size for size in asked if size == end and run.notes.source(size)] for end in (start, stop)}
    inner = [end for end in ends if 0 < end < label.size]
    if not all(len({size.source for size in ends[end]}) == 1 for end in inner):
        return False
    for end in inner:
        run.follow(ends[end][0], label[:end], call)
    return True


def _position(start: int | None, size: int) -> int:
    start = start or 0
    return max(0, start + size if start < 0 else min(start, size))


def drop_dim(run: Run, call: Call) -> None:
    """Freezes channels from which `select` or `unbind` takes single ones by position.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels = list(run.labels(call.args[0]))
    dim = call.arg("dim")
    run.keep_whole(labels[dim], f"is indexed by position in {call.name}", call)
    del labels[dim]
    for out in call.outputs:
        run.label(out, labels)


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


def flip(run: Run, call: Call) -> None:
    """Reverses the order of channels if their dimension is flipped.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels = list(run.labels(call.args[0]))
    for dim in call.arg("dims"):
        label = labels[dim]
        labels[dim] = None if label is None else label[::-1]
    run.label(call.out, labels)


def roll(run: Run, call: Call) -> None:
    """Freezes channels that are rolled; rolling along space has no effect on channels.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels = list(run.labels(call.args[0]))
    for dim in call.arg("dims") or range(len(labels)):
        run.freeze(labels[dim], f"is shifted by position in {call.name}", call)
        labels[dim] = None
    run.label(call.out, labels)


def pad(run: Run, call: Call) -> None:
    """Adds fixed positions for padding.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels = list(run.labels(call.args[0]))
    widths = call.arg("pad")
    for k in range(len(widths) // 2):
        dim = len(labels) - 1 - k
        label, before, after = labels[dim], widths[2 * k], widths[2 * k + 1]
        if label is None or before == after == 0:
            continue
        if before < 0 or after < 0:
            run.freeze(label, f"is cropped by position in {call.name}", call)
            labels[dim] = None
        else:
            labels[dim] = np.pad(label, (before, after), constant_values=FIXED)
    run.label(call.out, labels)


def index(run: Run, call: Call) -> None:
    """Follows `x[..., i, ...]`: freezes dimensions that are indexed by tensors, and passes the others on.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels, picked = run.labels(call.args[0]), _picked(call)
    for dim, label in enumerate(labels):
        if dim not in picked:
            run.freeze(label, "is indexed by a tensor", call)
    run.label(call.out, [None if dim is None else labels[dim] for dim in picked])


def index_put(run: Run, call: Call) -> None:
    """Follows `x[..., i, ...] = values`: freezes dimensions that are indexed by tensors, and ties the others.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    target, values, picked = call.args[0], call.arg("values"), _picked(call)
    expect_no_write_through_view(run, call)
    labels = list(raw_labels(target))
    for indexed in set(range(target.ndim)) - set(picked):
        run.freeze(run.labels(target)[indexed], "is indexed by a tensor", call)
        labels[indexed] = None
    for written, size, dim in zip(raw_labels(values)[::-1], values.shape[::-1], picked[::-1], strict=False):
        if dim is None:
            run.freeze(written, "is indexed by a tensor", call)
        elif size == target.shape[dim]:
            labels[dim] = join_dim(run, call, [labels[dim], written])
    run.label(call.out, labels)


def _picked(call: Call) -> list[int | None]:
    """The dimensions of `x[..., i, ...]` as dimensions of `x`; those that come from the indices are None."""
    used: list[int] = []
    rank = dim = 0
    for item in call.arg("indices"):
        is_mask = item is not None and item.dtype in (torch.bool, torch.uint8)
        num_dims = item.ndim if is_mask else 1
        if item is not None:
            used += range(dim, dim + num_dims)
            rank = max(rank, 1 if is_mask else item.ndim)
        dim += num_dims
    is_block = used == list(range(used[0], used[-1] + 1))  # otherwise the picked dimensions come first
    first = used[0] if is_block else 0
    rest = [dim for dim in range(call.args[0].ndim) if dim not in used]
    return [*rest[:first], *(None,) * rank, *rest[first:]]


def index_select(run: Run, call: Call) -> None:
    """Freezes the indexed dimension, and passes the others on.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels, dim = list(run.labels(call.args[0])), call.arg("dim")
    run.freeze(labels[dim], "is indexed by a tensor", call)
    labels[dim] = None
    run.label(call.out, labels)


def embedding(run: Run, call: Call) -> None:
    """Follows a lookup of one table row per token: the vocabulary is frozen, and the table produces the features.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    rows, features = run.labels(call.args[0])
    run.freeze(rows, "is a vocabulary", call)
    run.atoms.produce(features)
    run.label(call.out, (*(None,) * (call.out.ndim - 1), features))


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


def channel_shuffle(run: Run, call: Call) -> None:
    """Follows the fused channel shuffle: the i-th channels of the groups are tied and end up side by side.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels, groups = list(run.labels(call.args[0])), call.arg("groups")
    first = tie_parts(run, call, labels[1], call.args[0].shape[1] // groups)
    labels[1] = None if first is None else np.repeat(first, groups)
    run.label(call.out, labels)


def pixel_shuffle(run: Run, call: Call) -> None:
    """Follows channels that become space: the r x r neighbours that make one output channel are tied.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels, area = list(run.labels(call.args[0])), call.arg("upscale_factor") ** 2
    label = labels[-3]
    if label is not None:
        run.tie(np.repeat(label[::area], area), label, call)
        labels[-3] = label[::area]
    run.label(call.out, labels)


def pixel_unshuffle(run: Run, call: Call) -> None:
    """Follows space that becomes channels: one input channel becomes r x r output channels.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels, area = list(run.labels(call.args[0])), call.arg("downscale_factor") ** 2
    labels[-3] = None if labels[-3] is None else np.repeat(labels[-3], area)
    run.label(call.out, labels)


def unfold(run: Run, call: Call) -> None:
    """Follows `x.unfold(dim, size, step)`: freezes the dimension that is cut into windows, and passes the others on.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels, dim = list(run.labels(call.args[0])), call.arg("dimension")
    if labels:
        run.freeze(labels[dim], f"is cut into windows in {call.name}", call)
        labels[dim] = None
    run.label(call.out, (*labels, None))


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


def index_add(run: Run, call: Call) -> None:
    """Follows `x.index_add_(dim, index, source)`: freezes the indexed dimension, and ties the others.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    target, source, dim = call.args[0], call.arg("source"), call.arg("dim")
    for tensor in (target, source):
        run.freeze(run.labels(tensor)[dim], "is indexed by a tensor", call)
    expect_no_write_through_view(run, call)
    stored = [raw_labels(target), raw_labels(source)]
    labels = [join_dim(run, call, [each[d] for each in stored]) for d in range(target.ndim)]
    labels[dim] = None
    run.label(call.out, labels)


def gather(run: Run, call: Call) -> None:
    """Follows `x.gather(dim, index)`: freezes the indexed dimension, and ties source and index along the others.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    source, numbers, dim = call.args[0], call.arg("index"), call.arg("dim") % max(call.out.ndim, 1)
    labels, asked = run.labels(source), raw_labels(numbers)
    result: list[DimLabel] = []
    for d, label in enumerate(labels):
        if d == dim or numbers.shape[d] != source.shape[d]:
            run.freeze(label, "is indexed by a tensor", call)
            result.append(run.labels(numbers)[d])
        else:
            result.append(join_dim(run, call, [label, asked[d]]))
    run.label(call.out, result)
