"""Rules of reductions and of ops over space: reduced channels mix, all others are passed on."""

import numpy as np

from cafenet.tracing.calls import Call
from cafenet.tracing.recording import Rule, Run, raw_labels


def reduction(run: Run, call: Call) -> None:
    """Follows `mean`, `sum`, `amax` and others: the reduced dimensions vanish or get size 1.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    source = call.args[0]
    labels = list(run.labels(source))
    dims = _reduced(call, source.ndim)
    for dim in dims:
        run.atoms.mix(labels[dim])
        labels[dim] = None
    for out in call.outputs:
        kept = labels if out.ndim == source.ndim else [label for d, label in enumerate(labels) if d not in dims]
        run.label(out, kept)


def _reduced(call: Call, ndim: int) -> set[int]:
    try:
        dims = call.arg("dim")
    except KeyError:
        dims = None
    if isinstance(dims, int):
        dims = [dims]
    return {dim % ndim for dim in dims} if dims else set(range(ndim))


def picking_reduction(run: Run, call: Call) -> None:
    """Follows `max` over a dimension, which also returns the winning position: channels are frozen if the model uses
    it.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    source = call.args[0]
    labels = run.labels(source)
    for dim in _reduced(call, source.ndim):
        label = labels[dim]
        if label is not None:
            run.tell_apart(call.outputs[-1], label, call)
    reduction(run, call)


def along(run: Run, call: Call) -> None:
    """Follows `softmax` and `cumsum`: the shape stays, and values are mixed along one dimension.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels = raw_labels(call.args[0])
    run.atoms.mix(run.labels(call.args[0])[call.arg("dim")])
    run.label(call.out, labels)


def over_space(rank: int) -> Rule:
    """Builds the rule for pooling, resampling and padding of the last dimensions.

    Args:
        rank: Number of spatial dimensions.

    Returns:
        The rule.
    """

    def rule(run: Run, call: Call) -> None:
        labels = run.labels(call.args[0])
        for label in labels[-rank:]:
            run.freeze(label, f"is treated as space in {call.name}", call)
        for out in call.outputs:
            run.label(out, (*labels[:-rank], *(None,) * rank))

    return rule


def im2col(run: Run, call: Call) -> None:
    """Follows `F.unfold`: each channel becomes as many neighbouring channels as the kernel has positions.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels = run.labels(call.args[0])
    area = int(np.prod(call.arg("kernel_size")))
    channels = None if labels[-3] is None else np.repeat(labels[-3], area)
    run.label(call.out, (*labels[:-3], channels, None))


def col2im(run: Run, call: Call) -> None:
    """Follows `F.fold`: as many neighbouring channels as the kernel has positions become one channel.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels = list(run.labels(call.args[0]))
    area = int(np.prod(call.arg("kernel_size")))
    label = labels[-2]
    if label is not None:
        run.tie(label[::area].repeat(area), label, call)
        label = label[::area]
    run.freeze(labels[-1], f"is treated as space in {call.name}", call)
    run.label(call.out, (*labels[:-2], label, None, None))


def grid_sampler(run: Run, call: Call) -> None:
    """Follows sampling at given places: channels are passed on, space and the places themselves are frozen.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels = run.labels(call.args[0])
    for label in (*labels[2:], *run.labels(call.args[1])):
        run.freeze(label, f"is treated as space in {call.name}", call)
    run.label(call.out, (*labels[:2], *(None,) * (call.out.ndim - 2)))


def fourier(run: Run, call: Call) -> None:
    """Freezes the dimensions along which a Fourier transform goes, and passes all others on.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels = list(run.labels(call.args[0]))
    for dim in call.arg("dim"):
        run.freeze(labels[dim], f"is transformed along in {call.name}", call)
        labels[dim] = None
    run.label(call.out, labels)


def ranked(run: Run, call: Call) -> None:
    """Follows `topk`: freezes the dimension in which values are ranked, and passes all others on.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    labels = list(run.labels(call.args[0]))
    if labels:
        dim = call.arg("dim")
        run.freeze(labels[dim], f"is ranked by value in {call.name}", call)
        labels[dim] = None
    for out in call.outputs:
        run.label(out, labels)
