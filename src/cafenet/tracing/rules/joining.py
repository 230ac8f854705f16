"""Rules of ops that join, cut and rearrange the positions of a dimension."""

import math

import numpy as np
from torch import Tensor

from cafenet.tracing.atoms import FIXED, AtomArray, DimLabel
from cafenet.tracing.calls import Call
from cafenet.tracing.recording import Run, has_labels
from cafenet.tracing.rules.elementwise import joined, tie_parts


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
