"""Convolutions and matrix products: they consume the input's channels and produce the weight's.

FLOPs follow the paper and fvcore: one multiply-add is one FLOP, biases are free. A 3x3 convolution from 16 to 32
channels on a 10x10 output costs 10*10*3*3*16*32 = 460,800.
"""

import math

import numpy as np
from torch import Tensor

from cafenet.trace.atoms import DimLabel
from cafenet.trace.pricing import charge_whole
from cafenet.trace.rules.elementwise import tie_parts
from cafenet.trace.run import Call, Run


def convolution(run: Run, call: Call) -> None:
    """Ordinary, grouped, depthwise and transposed convolutions of any rank."""
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
    """Each channel has its own filter (or `multiplier` of them), so it keeps its identity."""
    multiplier = call.out.shape[1] // call.args[0].shape[1]
    out = None if channels is None else np.repeat(channels, multiplier)
    run.tie(channels if transposed else out, kernel, call)
    return out


def _grouped(
    run: Run, call: Call, channels: DimLabel, kernel: tuple[DimLabel, ...], groups: int, transposed: bool
) -> DimLabel:
    """The number of groups stays, so the i-th channels of all groups go together, on both sides."""
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
    """`x @ w.T + b`."""
    x, weight = call.args[:2]
    labels, (out, incoming) = run.labels(x), run.labels(weight)
    _product(run, call, labels[-1], incoming, out)
    if len(call.args) > 2 and call.args[2] is not None:
        run.tie(out, run.labels(call.args[2])[0], call)
    run.label(call.out, (*labels[:-1], out))
    rows = list(zip(x.shape[:-1], labels[:-1], strict=True))
    run.cost(1, *rows, (weight.shape[1], incoming), (weight.shape[0], out))


def mm(run: Run, call: Call) -> None:
    """`a @ b`: the shared dimension meets, the outer ones pass."""
    _matrix_product(run, call, *call.args[:2])


def addmm(run: Run, call: Call) -> None:
    """`bias + a @ b`."""
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
    """Whether the last two dimensions are two of one parameter; those of an activation are not."""
    rows, columns = run.labels(matrix)[-2:]
    return rows is not None and columns is not None and run.atoms.owner(rows) == run.atoms.owner(columns)


def bmm(run: Run, call: Call) -> None:
    """`a @ b` per sample. Where one factor is a weight that all samples share, this is how a linear layer runs on an
    input that is not contiguous."""
    a, b = call.args[:2]
    shared_a, shared_b = (_is_weight(run, t) and (t.shape[0] == 1 or t.stride(0) == 0) for t in (a, b))
    if not shared_a and not shared_b:
        batched(run, call)
        return
    (batch_a, rows, left), (batch_b, right, columns) = run.labels(a), run.labels(b)
    batch = batch_a if shared_b else batch_b
    _product(run, call, left, right, columns if shared_b else rows)
    run.label(call.out, (batch, rows, columns))
    run.cost(1, (a.shape[0], batch), (a.shape[1], rows), (a.shape[2], left), (b.shape[2], columns))


def batched(run: Run, call: Call) -> None:
    """Batched products are attention in practice, where head sizes are written into the code: keep them whole."""
    for tensor in call.tensors:
        for label in run.labels(tensor):
            run.freeze(label, "is a factor of a batched matrix product (attention)", call)
    charge_whole(run, call)
