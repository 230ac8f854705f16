"""Reductions and ops over space: channels that are reduced away mix, all others pass."""

import numpy as np

from cafenet.tracing.recording import Call, Rule, Run, raw_labels


def reduction(run: Run, call: Call) -> None:
    """`mean`, `sum`, `amax`, ...: the reduced dimensions go (or become 1)."""
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
    """`max` over a dimension also tells which channel won: if the model uses that number, the channels are kept."""
    source = call.args[0]
    labels = run.labels(source)
    for dim in _reduced(call, source.ndim):
        label = labels[dim]
        if label is not None:
            run.tell_apart(call.outputs[-1], label, call)
    reduction(run, call)


def along(run: Run, call: Call) -> None:
    """`softmax`, `cumsum`: same shape, values mixed along one dimension."""
    labels = raw_labels(call.args[0])
    run.atoms.mix(run.labels(call.args[0])[call.arg("dim")])
    run.label(call.out, labels)


def over_space(rank: int) -> Rule:
    """Pooling, resampling and padding of the last `rank` dimensions."""

    def rule(run: Run, call: Call) -> None:
        labels = run.labels(call.args[0])
        for label in labels[-rank:]:
            run.freeze(label, f"is treated as space in {call.name}", call)
        for out in call.outputs:
            run.label(out, (*labels[:-rank], *(None,) * rank))

    return rule


def im2col(run: Run, call: Call) -> None:
    """`unfold`: a channel becomes kernel-area many neighbours."""
    labels = run.labels(call.args[0])
    area = int(np.prod(call.arg("kernel_size")))
    channels = None if labels[-3] is None else np.repeat(labels[-3], area)
    run.label(call.out, (*labels[:-3], channels, None))


def col2im(run: Run, call: Call) -> None:
    """`fold`: kernel-area many neighbours become one channel again."""
    labels = list(run.labels(call.args[0]))
    area = int(np.prod(call.arg("kernel_size")))
    label = labels[-2]
    if label is not None:
        run.tie(label[::area].repeat(area), label, call)
        label = label[::area]
    run.freeze(labels[-1], f"is treated as space in {call.name}", call)
    run.label(call.out, (*labels[:-2], label, None, None))


def grid_sampler(run: Run, call: Call) -> None:
    """Samples at given places: channels pass, space and the places themselves are kept."""
    labels = run.labels(call.args[0])
    for label in (*labels[2:], *run.labels(call.args[1])):
        run.freeze(label, f"is treated as space in {call.name}", call)
    run.label(call.out, (*labels[:2], *(None,) * (call.out.ndim - 2)))


def fourier(run: Run, call: Call) -> None:
    """Fourier transforms keep the dimensions that they go along; all others pass."""
    labels = list(run.labels(call.args[0]))
    for dim in call.arg("dim"):
        run.freeze(labels[dim], f"is transformed along in {call.name}", call)
        labels[dim] = None
    run.label(call.out, labels)


def ranked(run: Run, call: Call) -> None:
    """`topk`: the dimension in which values are ranked is kept; all others pass."""
    labels = list(run.labels(call.args[0]))
    if labels:
        dim = call.arg("dim")
        run.freeze(labels[dim], f"is ranked by value in {call.name}", call)
        labels[dim] = None
    for out in call.outputs:
        run.label(out, labels)
