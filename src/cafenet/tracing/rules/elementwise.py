"""Elementwise ops: the i-th channels of all operands are one."""

from torch import Tensor

from cafenet.tracing.atoms import DimLabel, Labels
from cafenet.tracing.recording import BROADCAST, Call, Run, raw_labels


def elementwise(run: Run, call: Call) -> None:
    """Tie the operands' channels; sizes of 1 broadcast and are left alone."""
    operands = call.tensors
    expect_no_write_through_view(run, call)
    for out in call.outputs:
        if len(operands) == 1 and operands[0].shape == out.shape:
            if out is not operands[0]:
                run.label(out, raw_labels(operands[0]))
        else:
            run.label(out, joined(run, call, operands, out))


def expect_no_write_through_view(run: Run, call: Call) -> None:
    """Keep channels that are written into a part of a fresh tensor: the whole of it would not know of them."""
    target = call.outputs[0] if call.outputs else None
    if target is None or target is not call.tensors[0] or not any(each is BROADCAST for each in raw_labels(target)):
        return
    if target._is_view():
        run.label(target, run.labels(target))


def joined(run: Run, call: Call, operands: list[Tensor], out: Tensor) -> Labels:
    """The labels of an elementwise result, after tying what meets."""
    stored = [(operand, raw_labels(operand)) for operand in operands]
    return tuple(join_dim(run, call, _meeting(stored, dim, out.shape[dim])) for dim in range(-out.ndim, 0))


def _meeting(stored: list[tuple[Tensor, Labels]], dim: int, size: int) -> list[DimLabel]:
    """The labels that meet in one dimension of a result, counted from the right; a size of 1 broadcasts."""
    if size == 1:
        return []
    return [labels[dim] for operand, labels in stored if operand.ndim >= -dim and operand.shape[dim] == size]


def join_dim(run: Run, call: Call, found: list[DimLabel]) -> DimLabel:
    """Tie the labels that meet in one dimension, and return that of the result."""
    labels = [label for label in found if label is not BROADCAST]
    if not labels:
        return BROADCAST if found else None
    if all(label is None for label in labels):
        return None
    for label in labels[1:]:
        run.tie(labels[0], label, call)
    # What meets a dimension of fixed size is one from here on: channels flattened with it are followed all the same.
    return None if any(label is None for label in labels) else labels[0]


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
