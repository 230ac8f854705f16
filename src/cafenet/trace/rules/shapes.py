"""Ops that move, cut and join dimensions without touching values."""

import math
from collections.abc import Iterator

import numpy as np
from torch import Tensor

from cafenet.trace.atoms import FIXED, AtomArray, DimLabel
from cafenet.trace.rules.elementwise import joined, tie_parts
from cafenet.trace.run import BROADCAST, Call, Run, has_labels, raw_labels


def reshape(run: Run, call: Call) -> None:
    """Follow channels through `view`: blocks of dimensions with equal products are matched from the left."""
    source, out = call.args[0], call.out
    if not has_labels(source):
        return
    labels = run.labels(source)
    result: list[DimLabel] = [None] * out.ndim
    for i0, i1, j0, j1 in _blocks(tuple(source.shape), tuple(out.shape)):
        merged = _merge(run, call, tuple(source.shape[i0:i1]), labels[i0:i1])
        result[j0:j1] = _split(run, call, merged, tuple(out.shape[j0:j1]))
    run.label(out, result)


def _blocks(old: tuple[int, ...], new: tuple[int, ...]) -> Iterator[tuple[int, int, int, int]]:
    """Ranges of old and new dimensions with equal products: (2, 6) -> (2, 3, 2) gives 2|2 and 6|3x2."""
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
    """The label of several dimensions flattened into one: a flattened channel repeats its atom."""
    labelled = [dim for dim, label in enumerate(labels) if label is not None]
    if not labelled:
        return None
    if len(labelled) > 1:
        for dim in labelled:
            run.freeze(labels[dim], f"is flattened together with other channels in {call.name}", call)
        return None
    dim = labelled[0]
    if math.prod(sizes) == sizes[dim]:
        return labels[dim]
    shape = [1] * len(sizes)
    shape[dim] = sizes[dim]
    label = labels[dim]
    assert label is not None
    return np.broadcast_to(label.reshape(shape), sizes).reshape(-1)


def _split(run: Run, call: Call, merged: DimLabel, sizes: tuple[int, ...]) -> list[DimLabel]:
    """Labels of the dimensions that one dimension is cut into: one of them varies, the others keep their size."""
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
    dim = max(wide, key=lambda d: (sizes[d], d))
    lane = _lane(grid, dim)
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
    """Move labels with their dimensions."""
    labels = raw_labels(call.args[0])
    run.label(call.out, [labels[dim] for dim in call.arg("dims")])


def transpose(run: Run, call: Call) -> None:
    """Swap two dimensions."""
    labels = list(raw_labels(call.args[0]))
    if len(labels) > 1:
        first, second = (call.arg("dim0"), call.arg("dim1")) if len(call.args) > 1 else (0, 1)
        labels[first], labels[second] = labels[second], labels[first]
    run.label(call.out, labels)


def unsqueeze(run: Run, call: Call) -> None:
    """Insert a dimension of size 1."""
    labels, dim = list(raw_labels(call.args[0])), call.arg("dim")
    labels.insert(dim if dim >= 0 else dim + len(labels) + 1, None)
    run.label(call.out, labels)


def expand(run: Run, call: Call) -> None:
    """Blow up dimensions of size 1 or add new ones; these then fit whatever they meet."""
    source, out = call.args[0], call.out
    offset = out.ndim - source.ndim
    stored = raw_labels(source)
    result: list[DimLabel] = [BROADCAST if size > 1 else None for size in out.shape[:offset]]
    for dim, label in enumerate(stored):
        result.append(BROADCAST if source.shape[dim] == 1 < out.shape[offset + dim] else label)
    run.label(out, result)


def repeat(run: Run, call: Call) -> None:
    """Tile: a repeated channel is the same atom several times."""
    source, out = call.args[0], call.out
    offset = out.ndim - source.ndim
    labels = (None,) * offset + run.labels(source)
    repeats = call.arg("repeats")
    run.label(
        out, [None if label is None else np.tile(label, times) for label, times in zip(labels, repeats, strict=True)]
    )


def cat(run: Run, call: Call) -> None:
    """Concatenate the labels along the dimension; tie them along all others."""
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
            result.append(next(label for label in column if label is not None))
    run.label(call.out, result)


def _whole(tensor: Tensor, label: DimLabel, dim: int) -> AtomArray:
    return np.full(tensor.shape[dim], FIXED, dtype=np.int64) if label is None else label


def stack(run: Run, call: Call) -> None:
    """Join along a new dimension of fixed size."""
    tensors = call.arg("tensors")
    labels = list(joined(run, call, tensors, tensors[0]))
    dim = call.arg("dim")
    labels.insert(dim if dim >= 0 else dim + len(labels) + 1, None)
    run.label(call.out, labels)


def split(run: Run, call: Call) -> None:
    """Cut along a dimension; the i-th channels of equal parts go together, so that they stay equal."""
    labels = list(run.labels(call.args[0]))
    dim = call.args[2] if len(call.args) > 2 else call.kwargs.get("dim", 0)
    part = math.gcd(*(out.shape[dim] for out in call.out))
    first = tie_parts(run, call, labels[dim], part)
    for out in call.out:
        labels[dim] = None if first is None else np.tile(first, out.shape[dim] // part)
        run.label(out, labels)


def slice_dim(run: Run, call: Call) -> None:
    """A whole slice changes nothing; a part ties the parts of its size, as `chunk` does."""
    source, out = call.args[0], call.out
    labels = list(run.labels(source))
    dim, step = call.arg("dim"), call.arg("step")
    if labels[dim] is not None and out.shape[dim] != source.shape[dim]:
        size = source.shape[dim]
        start = _position(call.arg("start"), size)
        part = math.gcd(start, out.shape[dim], size)
        if step != 1 or out.shape[dim] == 0:
            run.freeze(labels[dim], f"is indexed by position in {call.name}", call)
            labels[dim] = None
        else:
            first = tie_parts(run, call, labels[dim], part)
            assert first is not None
            labels[dim] = np.tile(first, out.shape[dim] // part)
    run.label(out, labels)


def _position(start: int | None, size: int) -> int:
    start = start or 0
    return max(0, start + size if start < 0 else min(start, size))


def drop_dim(run: Run, call: Call) -> None:
    """`select`, `unbind`: picking single channels by number keeps them all."""
    labels = list(run.labels(call.args[0]))
    dim = call.arg("dim")
    run.freeze(labels[dim], f"is indexed by position in {call.name}", call)
    del labels[dim]
    for out in call.outputs:
        run.label(out, labels)


def squeeze(run: Run, call: Call) -> None:
    """Remove dimensions of size 1; a dimension of channels that is asked for must never become one."""
    source, out = call.args[0], call.out
    labels = raw_labels(source)
    asked = call.args[1] if len(call.args) > 1 else range(source.ndim)
    dims = {dim % source.ndim for dim in ([asked] if isinstance(asked, int) else asked)} if source.ndim else set()
    for dim in dims:
        run.atoms.keep_two(labels[dim])
    run.label(out, [label for dim, label in enumerate(labels) if dim not in dims or source.shape[dim] > 1])


def flip(run: Run, call: Call) -> None:
    """Reverse the order of channels where a labelled dimension is flipped."""
    labels = list(run.labels(call.args[0]))
    for dim in call.arg("dims"):
        label = labels[dim]
        labels[dim] = None if label is None else label[::-1]
    run.label(call.out, labels)


def roll(run: Run, call: Call) -> None:
    """Rolling along space is free; rolling channels keeps them."""
    labels = list(run.labels(call.args[0]))
    for dim in call.arg("dims") or range(len(labels)):
        run.freeze(labels[dim], f"is shifted by position in {call.name}", call)
        labels[dim] = None
    run.label(call.out, labels)


def pad(run: Run, call: Call) -> None:
    """Padding adds positions that are always there."""
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
    """`x[..., i, ...]` with one index tensor: the indexed dimension is kept, the others pass."""
    labels, indices = run.labels(call.args[0]), call.arg("indices")
    used = [dim for dim, item in enumerate(indices) if item is not None]
    if len(used) != 1 or indices[used[0]].dtype.is_floating_point or str(indices[used[0]].dtype) == "torch.bool":
        for label in labels:
            run.freeze(label, "is indexed by a tensor", call)
        return
    dim = used[0]
    run.freeze(labels[dim], "is indexed by a tensor", call)
    run.label(call.out, (*labels[:dim], *(None,) * indices[dim].ndim, *labels[dim + 1 :]))


def index_select(run: Run, call: Call) -> None:
    """The indexed dimension is kept, the others pass."""
    labels, dim = list(run.labels(call.args[0])), call.arg("dim")
    run.freeze(labels[dim], "is indexed by a tensor", call)
    labels[dim] = None
    run.label(call.out, labels)


def embedding(run: Run, call: Call) -> None:
    """A table row a token: the vocabulary is kept, the features are channels that the table produces."""
    rows, features = run.labels(call.args[0])
    run.freeze(rows, "is a vocabulary", call)
    run.atoms.produce(features)
    run.label(call.out, (*(None,) * (call.out.ndim - 1), features))


def restride(run: Run, call: Call) -> None:
    """Another memory format of the same shape is the same tensor; any other use of strides is opaque."""
    source, out = call.args[0], call.out
    if tuple(call.arg("size")) == tuple(out.shape) == tuple(source.shape) and not call.arg("storage_offset"):
        run.label(out, raw_labels(source))
        return
    for label in run.labels(source):
        run.freeze(label, f"is read through strides in {call.name}", call)


def fresh(run: Run, call: Call) -> None:
    """`x.new_zeros(size)` takes nothing from x but its type."""


def channel_shuffle(run: Run, call: Call) -> None:
    """The fused shuffle: the i-th channels of the groups go together and end up side by side."""
    labels, groups = list(run.labels(call.args[0])), call.arg("groups")
    first = tie_parts(run, call, labels[1], call.args[0].shape[1] // groups)
    labels[1] = None if first is None else np.repeat(first, groups)
    run.label(call.out, labels)


def pixel_shuffle(run: Run, call: Call) -> None:
    """Channels become space: the r x r neighbours that make one output channel go together."""
    labels, area = list(run.labels(call.args[0])), call.arg("upscale_factor") ** 2
    label = labels[-3]
    if label is not None:
        run.tie(np.repeat(label[::area], area), label, call)
        labels[-3] = label[::area]
    run.label(call.out, labels)


def pixel_unshuffle(run: Run, call: Call) -> None:
    """Space becomes channels: one input channel is r x r output channels."""
    labels, area = list(run.labels(call.args[0])), call.arg("downscale_factor") ** 2
    labels[-3] = None if labels[-3] is None else np.repeat(labels[-3], area)
    run.label(call.out, labels)
