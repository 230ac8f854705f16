"""Rules of normalisations, whose parameters are tied to the channels that they scale."""

from torch import nn
from torch.nn.modules.instancenorm import _InstanceNorm

from cafenet.tracing.atoms import DimLabel
from cafenet.tracing.calls import Call
from cafenet.tracing.recording import AttributeLabel, Run
from cafenet.tracing.rules.elementwise import tie_parts


def batch_norm(run: Run, call: Call) -> None:
    """Ties weight, bias and running statistics to dimension 1; every channel is normalised on its own.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    x = call.args[0]
    labels = run.labels(x)
    for tensor in call.tensors[1:]:
        if tensor.ndim == 1:
            run.tie(labels[1], run.labels(tensor)[0], call)
    for label in (labels[0], *labels[2:]):
        run.atoms.mix(label)  # a weight that is standardised by batch norm
    run.label(call.outputs[0], labels)
    for statistic in call.outputs[1:]:
        if tuple(statistic.shape) == (x.shape[1],):
            run.label(statistic, (labels[1],))
    channels = labels[1]
    if isinstance(call.module, _InstanceNorm) and channels is not None:
        channels = channels[: call.module.num_features]  # the input is (1, N x C, ...): the channels of all samples
    _count(run, call, "num_features", channels)


def layer_norm(run: Run, call: Call) -> None:
    """Ties weight and bias to the last dimensions, across which values are normalised.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    x, shape = call.args[:2]
    labels = run.labels(x)
    for tensor in call.tensors[1:]:
        for dim in range(-tensor.ndim, 0):
            run.tie(labels[dim], run.labels(tensor)[dim], call)
    outer = labels[: len(labels) - len(shape)]
    for label in labels[len(outer) :]:
        run.atoms.mix(label)
    run.label(call.outputs[0], labels)
    for statistic in call.outputs[1:]:
        run.label(statistic, (*outer, *(None,) * (statistic.ndim - len(outer))))
    if len(shape) == 1:
        _count(run, call, "normalized_shape", labels[-1], per_element=True)
    else:
        for label in labels[len(outer) :]:
            run.freeze(label, "is normalised together with other dimensions", call)


def group_norm(run: Run, call: Call) -> None:
    """Lets `nn.GroupNorm` lose whole groups, which leaves the statistics of the others unchanged.

    Elsewhere (`F.group_norm`) the number of groups is fixed, so the i-th channels of all groups are tied.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    x, weight, bias = call.args[:3]
    groups, labels = call.arg("group"), run.labels(x)
    channels = labels[1]
    for tensor in (weight, bias):
        if tensor is not None:
            run.tie(channels, run.labels(tensor)[0], call)
    run.label(call.outputs[0], labels)
    if channels is None:
        return
    _count(run, call, "num_channels", channels)
    size = channels.size // groups
    if isinstance(call.module, nn.GroupNorm):
        leaders = channels[::size]
        run.tie(leaders.repeat(size), channels, call)
        _count(run, call, "num_groups", leaders)
        for statistic in call.outputs[1:]:
            run.label(statistic, (labels[0], leaders))
    else:
        run.atoms.mix(channels)
        tie_parts(run, call, channels, size)


def weight_norm(run: Run, call: Call) -> None:
    """Follows `g * v / |v|`: the direction and the length of a weight, with one length per position of a dimension.

    The length is taken over the kept channels, so the others change if one is dropped.

    Args:
        run: The trace so far, to which the rule adds labels, ties, freezes and costs.
        call: The call of the op.
    """
    v, g = call.args[:2]
    labels, lengths = run.labels(v), run.labels(g)
    for dim, label in enumerate(labels):
        if g.ndim == v.ndim and g.shape[dim] == v.shape[dim] > 1:
            run.tie(label, lengths[dim], call)
        run.atoms.mix(label)
    run.label(call.outputs[0], labels)
    run.label(call.outputs[1], lengths)


def _count(run: Run, call: Call, attribute: str, label: DimLabel, per_element: bool = False) -> None:
    """Lets a size that the running module stores follow a label; it is one number, however often the module is used."""
    if label is None or getattr(call.module, attribute, None) != ((label.size,) if per_element else label.size):
        return
    if getattr(call.module, "weight", None) is None:
        for earlier in run.attributes:
            if (earlier.path, earlier.attribute) == (call.path, attribute):
                run.tie(earlier.label, label, call)
    run.attributes.append(AttributeLabel(call.path, attribute, label, per_element))
