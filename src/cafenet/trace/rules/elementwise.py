"""Elementwise ops: the i-th channels of all operands are one."""

from torch import Tensor

from cafenet.trace.atoms import DimLabel, Labels
from cafenet.trace.run import BROADCAST, Call, Run, raw_labels


def elementwise(run: Run, call: Call) -> None:
    """Tie the operands' channels; sizes of 1 broadcast and are left alone."""
    operands = call.tensors
    for out in call.outputs:
        if len(operands) == 1 and operands[0].shape == out.shape:
            if out is not operands[0]:
                run.label(out, raw_labels(operands[0]))
        else:
            run.label(out, joined(run, call, operands, out))


def joined(run: Run, call: Call, operands: list[Tensor], out: Tensor) -> Labels:
    """The labels of an elementwise result, after tying what meets."""
    stored = [(operand, raw_labels(operand)) for operand in operands]
    return tuple(_join_dim(run, call, stored, dim, out) for dim in range(-out.ndim, 0))


def _join_dim(run: Run, call: Call, stored: list[tuple[Tensor, Labels]], dim: int, out: Tensor) -> DimLabel:
    size = out.shape[dim]
    if size == 1:
        return None
    found = [labels[dim] for operand, labels in stored if operand.ndim >= -dim and operand.shape[dim] == size]
    labels = [label for label in found if label is not BROADCAST]
    if not labels:
        return BROADCAST if found else None
    if all(label is None for label in labels):
        return None
    for label in labels[1:]:
        run.tie(labels[0], label, call)
    return next(label for label in labels if label is not None)


def carry(run: Run, call: Call) -> None:
    """Ops whose results look like their first tensor (`zeros_like`, `bernoulli_`)."""
    operands = call.tensors
    for out in call.outputs:
        if operands and out is not operands[0] and out.shape == operands[0].shape:
            run.label(out, raw_labels(operands[0]))


def glu(run: Run, call: Call) -> None:
    """A gated linear unit: the i-th channels of both halves go together."""
    dim = call.arg("dim")
    labels = list(run.labels(call.args[0]))
    labels[dim] = tie_parts(run, call, labels[dim], call.out.shape[dim])
    run.label(call.out, labels)


def tie_parts(run: Run, call: Call, label: DimLabel, part: int) -> DimLabel:
    """Cut a label into equal parts, tie the i-th channels of all parts, and return the first part."""
    if label is None:
        return None
    first = label[:part]
    for start in range(part, label.size, part):
        run.tie(first, label[start : start + part], call)
    return first
