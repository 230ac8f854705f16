"""A subnet becomes a slim model: a plain module of the original class with real, smaller layers."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from cafenet.calling import RECORD, copy_of, named_tensors, unsaved_buffers
from cafenet.errors import WidthError
from cafenet.layout import Layout, Subnet, cuts
from cafenet.slicing import AttributeValues, attribute_values, slice_tensors


@dataclass(frozen=True)
class SlimRecord:
    """What a slim model remembers of its origin, so that it can be saved and rebuilt without tracing again."""

    widths: dict[str, int]
    channels: dict[str, list[int]]
    attributes: AttributeValues
    full_shapes: dict[str, tuple[int, ...]]
    """Of all tensors but buffers that are not saved and have no channels, such as a table of positions."""


def extract(
    model: nn.Module,
    layout: Layout,
    subnet: Subnet,
    widths: dict[str, int],
    channels: dict[str, list[int]],
    tensors: Mapping[str, Tensor] | None = None,
) -> nn.Module:
    """The slim model of a subnet, out of the model's tensors or others of the same shapes; no full copy is made."""
    tensors = named_tensors(model) if tensors is None else tensors
    unknown = sorted(set(layout.axes) - set(tensors))
    if unknown:
        raise WidthError(f"the model must have the tensors that were traced, but lacks {', '.join(unknown[:5])}")
    chosen = cuts(layout, subnet)
    with torch.no_grad():
        sliced = {name: t.clone() for name, t in slice_tensors(tensors, layout, chosen).items()}
    values = attribute_values(layout, chosen)
    optional = unsaved_buffers(model) - set(layout.axes)
    full_shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name not in optional}
    return rebuild(model, sliced, SlimRecord(widths, channels, values, full_shapes))


def rebuild(model: nn.Module, tensors: Mapping[str, Tensor], record: SlimRecord) -> nn.Module:
    """A copy of the model around other tensors, with the record's attributes set."""
    memo: dict[int, object] = {}
    for name, parameter in model.named_parameters():
        replacement = nn.Parameter(tensors[name].to(parameter.device), requires_grad=parameter.requires_grad)
        memo[id(parameter)] = replacement
    for name, buffer in model.named_buffers():
        if name in tensors:  # else one that a forward made after the tensors were taken, and that has no channels
            memo[id(buffer)] = tensors[name].to(buffer.device)
    slim = copy_of(model, memo)
    for (path, attribute), value in record.attributes.items():
        module = slim.get_submodule(path)
        is_list = isinstance(getattr(module, attribute, None), list)  # in a record, and in files, it is a tuple
        setattr(module, attribute, list(value) if is_list and isinstance(value, tuple) else value)
    _compute_hooked_weights(slim)
    setattr(slim, RECORD, record)
    return slim


def _compute_hooked_weights(slim: nn.Module) -> None:
    """Hooks of torch's pruning and weight norm keep `weight` as a plain tensor, which has the old size until they run.

    So does spectral norm's, which in train mode would also write to its buffers.
    """
    for module in slim.modules():
        for hook in module._forward_pre_hooks.values():
            with torch.no_grad():
                if isinstance(hook, (BasePruningMethod, WeightNorm)):
                    hook(module, ())
                elif isinstance(hook, SpectralNorm):
                    setattr(module, hook.name, hook.compute_weight(module, do_power_iteration=False))
