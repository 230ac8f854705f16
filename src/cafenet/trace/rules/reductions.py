"""Reductions and ops over space: channels that are reduced away mix, all others pass."""

import numpy as np

from cafenet.trace.run import Call, Rule, Run, raw_labels


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
