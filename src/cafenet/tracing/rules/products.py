"""Rules of convolutions and matrix products, which consume the input's channels and produce the weight's.

FLOPs follow the paper and fvcore: one multiply-add is one FLOP, and biases are free. A 3x3 convolution from 16 to 32
channels on a 10x10 output costs 10*10*3*3*16*32 = 460,800.
"""

import math

import numpy as np
from torch import Tensor

from cafenet.tracing.atoms import DimLabel
from cafenet.tracing.calls import Call
from cafenet.tracing.places import atoms_of
from cafenet.tracing.pricing import charge_whole
from cafenet.tracing.recording import BROADCAST, Run, Scores, has_labels, raw_labels
from cafenet.tracing.rules.elementwise import join_dim, joined, tie_parts


def convolution(run: Run, call: Call) -> None:
    """Follows ordinary, grouped, depthwise and transposed convolutions of any rank.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    x, weight, bias = call.args[:3]
    transposed, groups = call.arg("transposed"), call.arg("groups")
    labels, kernel = run.labels(x), run.labels(weight)
    if groups == 1:
        incoming, out = (kernel[0], kernel[1]) if transposed else (kernel[1], kernel[0])
        run.tie(labels[1], incoming, call)
        run.atoms.produce(out)
    elif groups == x.shape[1]:
        out = _depthwise(run, call, labels[1], kernel[0], transposed)
    else:
        out = _grouped(run, call, labels[1], kernel, groups, transposed)
        run.atoms.produce(kernel[1 if transposed else 0], copies=groups if transposed else 1)
    if bias is not None:
        run.tie(out, run.labels(bias)[0], call)
    for label in labels[2:]:
        run.freeze(label, "is convolved over", call)
    run.label(call.out, (labels[0], out, *(None,) * (call.out.ndim - 2)))
    positions = math.prod((x if transposed else call.out).shape[2:])
    constant = positions * math.prod(weight.shape[2:])
    run.cost(constant, (x.shape[0], labels[0]), (weight.shape[0], kernel[0]), (weight.shape[1], kernel[1]))


def _depthwise(run: Run, call: Call, channels: DimLabel, kernel: DimLabel, transposed: bool) -> DimLabel:
    """Passes channels on: each has its own filter (or `multiplier` of them), so it keeps its identity."""
    multiplier = call.out.shape[1] // call.args[0].shape[1]
    out = None if channels is None else np.repeat(channels, multiplier)
    run.tie(channels if transposed else out, kernel, call)
    return out


def _grouped(
    run: Run, call: Call, channels: DimLabel, kernel: tuple[DimLabel, ...], groups: int, transposed: bool
) -> DimLabel:
    """Ties the i-th channels of all groups on both sides, because the number of groups stays."""
    x = call.args[0]
    first = tie_parts(run, call, channels, x.shape[1] // groups)
    if transposed:
        run.tie(None if first is None else np.tile(first, groups), kernel[0], call)
        out = kernel[1]
    else:
        run.tie(first, kernel[1], call)
        out = tie_parts(run, call, kernel[0], call.out.shape[1] // groups)
    return None if out is None else np.tile(out, groups)


def linear(run: Run, call: Call) -> None:
    """Follows `x @ w.T + b`.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    x, weight = call.args[:2]
    labels, (out, incoming) = run.labels(x), run.labels(weight)
    _product(run, call, labels[-1], incoming, out)
    if len(call.args) > 2 and call.args[2] is not None:
        run.tie(out, run.labels(call.args[2])[0], call)
    run.label(call.out, (*labels[:-1], out))
    rows = list(zip(x.shape[:-1], labels[:-1], strict=True))
    run.cost(1, *rows, (weight.shape[1], incoming), (weight.shape[0], out))


def mm(run: Run, call: Call) -> None:
    """Follows `a @ b`: ties the shared dimension, and passes the outer ones on.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    _matrix_product(run, call, *call.args[:2])


def addmm(run: Run, call: Call) -> None:
    """Follows `bias + a @ b`.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    _matrix_product(run, call, *call.args[1:3])
    bias, labels = call.args[0], run.labels(call.out)
    for dim in range(-bias.ndim, 0):
        if bias.shape[dim] > 1:
            run.tie(labels[dim], run.labels(bias)[dim], call)


def _matrix_product(run: Run, call: Call, a: Tensor, b: Tensor) -> None:
    (rows, left), (right, columns) = run.labels(a), run.labels(b)
    _product(run, call, left, right, rows if _is_weight(run, a) and not _is_weight(run, b) else columns)
    run.label(call.out, (rows, columns))
    run.cost(1, (a.shape[0], rows), (a.shape[1], left if left is not None else right), (b.shape[1], columns))


def _product(run: Run, call: Call, left: DimLabel, right: DimLabel, produced: DimLabel) -> None:
    run.tie(left, right, call)
    run.atoms.produce(produced)


def _is_weight(run: Run, matrix: Tensor) -> bool:
    """Whether the last two dimensions are dimensions of one parameter; those of an activation are not."""
    labels = run.labels(matrix)[-2:]
    rows, columns = (None if label is None else run.atoms.axis_of(label) for label in labels)
    return rows is not None and columns is not None and rows.tensor == columns.tensor and rows.dim != columns.dim


def mv(run: Run, call: Call) -> None:
    """Follows a matrix times a vector, which spectral norm does with weights.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    (rows, columns), (vector,) = run.labels(call.args[0]), run.labels(call.args[1])
    run.tie(columns, vector, call)
    if _is_weight(run, call.args[0]):
        run.atoms.produce(rows)
    run.label(call.out, (rows,))
    inner = columns if columns is not None else vector
    run.cost(1, (call.args[0].shape[0], rows), (call.args[0].shape[1], inner))


def dot(run: Run, call: Call) -> None:
    """Follows the product of two vectors, in which all channels are reduced to one number.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    (left,), (right,) = run.labels(call.args[0]), run.labels(call.args[1])
    run.tie(left, right, call)
    run.atoms.mix(left)
    run.atoms.mix(right)
    run.cost(1, (call.args[0].shape[0], left if left is not None else right))


def bmm(run: Run, call: Call) -> None:
    """Follows `a @ b` per sample: with a weight, with a matrix that has no channels, or, in attention, of two
    activations.

    A linear layer runs as a product with a weight that all samples share if its input is not contiguous. One weight per
    entry of the batch is a layer of experts. A matrix without channels mixes places, for example the adjacency of a
    dense graph network.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    _batched_product(run, call, *call.args[:2])


def baddbmm(run: Run, call: Call) -> None:
    """Follows `added + a @ b` per sample. In attention, a mask is added to the scores.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    added, a, b = call.args[:3]
    _batched_product(run, call, a, b)
    run.label(call.out, joined(run, call, [call.out, added], call.out))


def _batched_product(run: Run, call: Call, a: Tensor, b: Tensor) -> None:
    weight_a, weight_b = _is_weight(run, a), _is_weight(run, b)
    (batch_a, rows, left), (batch_b, right, columns) = run.labels(a), run.labels(b)
    if weight_a or weight_b:
        run.tie(left, right, call)
        run.atoms.produce(columns if weight_b else rows)
    else:
        rows, columns = _of_activations(run, call, a, b)
    if (weight_a and _is_shared(a)) or (weight_b and _is_shared(b)):
        batch = batch_a if weight_b else batch_b
    else:
        batch = join_dim(run, call, [raw_labels(a)[0], raw_labels(b)[0]])
        batch = None if batch is BROADCAST else batch
    run.label(call.out, (batch, rows, columns))
    inner = left if left is not None else right
    run.cost(1, (a.shape[0], batch), (a.shape[1], rows), (a.shape[2], inner), (b.shape[2], columns))


def _of_activations(run: Run, call: Call, a: Tensor, b: Tensor) -> tuple[DimLabel, DimLabel]:
    """Keeps the features of heads whole in a product of two activations; heads, as its batch, may vary.

    Returns:
        The labels of the result's rows and columns.
    """
    (batch_a, rows, left), (batch_b, right, columns) = run.labels(a), run.labels(b)
    if run.follows_sizes:
        return _of_sizes(run, call, a, b)
    is_attention = _is_of_attention(a) or _is_of_attention(b) or left is not None or right is not None
    run.has_attention |= is_attention or batch_a is not None or batch_b is not None
    if not is_attention and (batch_a is None) == (batch_b is None):
        return rows, columns
    for label in (rows, left, right, columns):
        run.keep_whole(label, _WHOLE, call)
    setattr(call.out, _ATTENTION, True)
    return None, None


def _of_sizes(run: Run, call: Call, a: Tensor, b: Tensor) -> tuple[DimLabel, DimLabel]:
    """Lets the features of heads vary: the sum over them in scores, and those of the values.

    Returns:
        The labels of the result's rows and columns.
    """
    (_, rows, left), (_, right, columns) = run.labels(a), run.labels(b)
    whole: list[DimLabel]
    rest: list[DimLabel]
    run.has_attention = True
    if left is not None and right is not None:
        run.tie(left, right, call)
        run.features.append(left)
        setattr(call.out, _FEATURES, left)
        run.scores.append(Scores(call.path, left, atoms_of(a, b)))
        whole, rest = [rows, columns], [None, None]
    elif left is None and right is None and _is_of_attention(a):
        whole, rest = [rows], [None, columns]
    elif left is None and right is None and _is_of_attention(b):
        whole, rest = [columns], [rows, None]
    else:
        whole, rest = [rows, columns, left, right], [None, None]
    for label in whole:
        run.keep_whole(label, _WHOLE, call)
    if rest[0] is None and rest[1] is None:
        setattr(call.out, _ATTENTION, True)
    known = getattr(a, _FEATURES, getattr(b, _FEATURES, None))
    for label in (label for label in rest if label is not None):
        run.features.append(label)
        if known is not None and known.size == label.size:
            run.tie(known, label, call)  # code has one number for the size of all its heads
    return rest[0], rest[1]


_WHOLE = "is a factor of a batched matrix product (attention), whose sizes stay"


def _is_shared(matrix: Tensor) -> bool:
    return matrix.shape[0] == 1 or matrix.stride(0) == 0


def grouped_mm(run: Run, call: Call) -> None:
    """Follows rows sorted by expert times the experts' weights: `(rows, in) x (experts, in, out)`.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    a, b = call.args[:2]
    labels_a, labels_b = run.labels(a), run.labels(b)
    if a.ndim != 2 or b.ndim != 3:
        batched(run, call)
        return
    run.freeze(labels_b[0], "is a number of experts", call)
    for label in (labels_a[1], labels_b[2]):
        _tie_neighbours(run, call, label, 16 // a.element_size())  # the kernel takes rows of whole 16 bytes
    _product(run, call, labels_a[1], labels_b[1], labels_b[2])
    bias = call.arg("bias")
    if bias is not None:
        run.tie(labels_b[2], run.labels(bias)[-1], call)
    run.label(call.out, (labels_a[0], labels_b[2]))
    run.cost(1, (a.shape[0], labels_a[0]), (a.shape[1], labels_a[1]), (b.shape[2], labels_b[2]))


def _tie_neighbours(run: Run, call: Call, label: DimLabel, number: int) -> None:
    if label is not None:
        run.tie(label[::number].repeat(number)[: label.size], label, call)


_ATTENTION = "_cafenet_attention"
_FEATURES = "_cafenet_features"
"""Names of the attributes of tensors that are computed from scores, and that hold the features of their heads."""


def _is_of_attention(tensor: Tensor) -> bool:
    return hasattr(tensor, _ATTENTION)


def pass_attention_on(call: Call) -> None:
    """Marks tensors that are computed from attention scores, until these meet a tensor with channels.

    Args:
        call: The call of the op.
    """
    if any(has_labels(out) for out in call.outputs):
        return
    if any(_is_of_attention(tensor) for tensor in call.tensors):
        for out in call.outputs:
            setattr(out, _ATTENTION, True)
            features = next((getattr(each, _FEATURES) for each in call.tensors if hasattr(each, _FEATURES)), None)
            if features is not None:
                setattr(out, _FEATURES, features)


def batched(run: Run, call: Call) -> None:
    """Freezes both factors of a product of two activations: in practice this is attention, with head sizes fixed in
    the code.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    for tensor in call.tensors:
        for label in run.labels(tensor):
            run.freeze(label, _WHOLE, call)
    for out in call.outputs:
        setattr(out, _ATTENTION, True)
    charge_whole(run, call)
