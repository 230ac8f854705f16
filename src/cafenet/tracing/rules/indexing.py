"""Rules of ops that pick positions by number: lookups, gathers and writes by index."""

import torch

from cafenet.tracing.atoms import DimLabel
from cafenet.tracing.calls import Call
from cafenet.tracing.recording import Run, raw_labels
from cafenet.tracing.rules.elementwise import expect_no_write_through_view, join_dim


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
