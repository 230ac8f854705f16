"""Rules of elementwise ops, which tie the i-th channels of all operands."""

from torch import Tensor

from cafenet.tracing.atoms import DimLabel, Labels
from cafenet.tracing.calls import Call
from cafenet.tracing.recording import BROADCAST, Run, raw_labels


def elementwise(run: Run, call: Call) -> None:
    """Ties the channels of the operands. Dimensions of size 1 broadcast and are left alone.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    operands = call.tensors
    expect_no_write_through_view(run, call)
    for out in call.outputs:
        if len(operands) == 1 and operands[0].shape == out.shape:
            if out is not operands[0]:
                run.label(out, raw_labels(operands[0]))
        else:
            run.label(out, joined(run, call, operands, out))


def expect_no_write_through_view(run: Run, call: Call) -> None:
    """Prevents that channels are written to a part of a fresh tensor unnoticed: the tensor as a whole would not
    carry them.

    The dimensions of the part become fixed, so the channels that are written to it are frozen.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    target = call.outputs[0] if call.outputs else None
    if target is None or target is not call.tensors[0] or not any(each is BROADCAST for each in raw_labels(target)):
        return
    if target._is_view():
        run.label(target, run.labels(target))


def joined(run: Run, call: Call, operands: list[Tensor], out: Tensor) -> Labels:
    """Ties the labels that meet in an elementwise op.

    Args:
        run: The trace so far, to which the ties are added.
        call: The call of the op.
        operands: The tensors that meet.
        out: The result, or a tensor of its shape.

    Returns:
        The labels of the result.
    """
    stored = [(operand, raw_labels(operand)) for operand in operands]
    return tuple(join_dim(run, call, _meeting(stored, dim, out.shape[dim])) for dim in range(-out.ndim, 0))


def _meeting(stored: list[tuple[Tensor, Labels]], dim: int, size: int) -> list[DimLabel]:
    """The labels that meet in one dimension of a result, counted from the right; a size of 1 broadcasts."""
    if size == 1:
        return []
    return [labels[dim] for operand, labels in stored if operand.ndim >= -dim and operand.shape[dim] == size]


def join_dim(run: Run, call: Call, found: list[DimLabel]) -> DimLabel:
    """Ties the labels that meet in one dimension.

    Args:
        run: The trace so far, to which the ties are added.
        call: The call of the op.
        found: The labels of all operands in this dimension.

    Returns:
        The label of the result.
    """
    labels = [label for label in found if label is not BROADCAST]
    if not labels:
        return BROADCAST if found else None
    if all(label is None for label in labels):
        return None
    for label in labels[1:]:
        run.tie(labels[0], label, call)
    # A dimension that meets one of fixed size is itself fixed from here on. Other channels that are flattened together
    # with it can then still be followed.
    return None if any(label is None for label in labels) else labels[0]


def carry(run: Run, call: Call) -> None:
    """Labels results that look like the first tensor (`zeros_like`, `bernoulli_`).

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    operands = call.tensors
    for out in call.outputs:
        if operands and out is not operands[0] and out.shape == operands[0].shape:
            run.label(out, raw_labels(operands[0]))


def glu(run: Run, call: Call) -> None:
    """Ties the i-th channels of both halves of a gated linear unit.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    dim = call.arg("dim")
    labels = list(run.labels(call.args[0]))
    labels[dim] = tie_parts(run, call, labels[dim], call.out.shape[dim])
    run.label(call.out, labels)


def tie_parts(run: Run, call: Call, label: DimLabel, part: int) -> DimLabel:
    """Cuts a label into equal parts, and ties the i-th channels of all parts.

    Args:
        run: The trace so far, to which the ties are added.
        call: The call of the op.
        label: The label to cut.
        part: Number of channels per part.

    Returns:
        The first part, or None if the label is None.
    """
    if label is None:
        return None
    first = label[:part]
    for start in range(part, label.size, part):
        run.tie(first, label[start : start + part], call)
    return first
