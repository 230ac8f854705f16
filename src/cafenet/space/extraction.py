"""A subnet becomes a slim model: a plain module of the original class with real, smaller layers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from cafenet.errors import WidthError
from cafenet.modules.calling import RECORD, copy_of, named_tensors, unsaved_buffers
from cafenet.space.layout import Cut, IntArray, Layout, Subnet, cuts
from cafenet.space.slicing import AttributeValues, attribute_values, slice_tensors


@dataclass(frozen=True, eq=False)
class SlimRecord:
    """What a slim model remembers of its origin, so that it can be saved, checked and rebuilt without tracing again."""

    widths: dict[str, int]
    channels: dict[str, list[int]]
    units_of_channels: Mapping[str, IntArray]
    """The unit of every channel of a group, counted from 0 inside the group."""
    layout: Layout
    subnet: Subnet
    full_shapes: dict[str, tuple[int, ...]]
    """Of all tensors but buffers that are not saved and have no channels, such as a table of positions."""

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        """What is kept of every pattern of the layout."""
        return cuts(self.layout, self.subnet)

    @property
    def attributes(self) -> AttributeValues:
        """The values of the attributes that follow widths."""
        return attribute_values(self.layout, self.cuts)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape that every tensor of `full_shapes` has in the slim model."""
        found = {}
        for name, full in self.full_shapes.items():
            sizes = {dim: self.cuts[pattern].positions.size for dim, pattern in self.layout.axes.get(name, {}).items()}
            found[name] = tuple(int(sizes.get(dim, size)) for dim, size in enumerate(full))
        return found


def extract(
    model: nn.Module,
    layout: Layout,
    subnet: Subnet,
    widths: dict[str, int],
    channels: dict[str, list[int]],
    tensors: Mapping[str, Tensor] | None = None,
    units_of_channels: Mapping[str, IntArray] | None = None,
) -> nn.Module:
    """The slim model of a subnet, out of the model's tensors or others of the same shapes; no full copy is made.

    units_of_channels: the unit of every channel of each group; a slim model without them can not be saved.
    """
    tensors = named_tensors(model) if tensors is None else tensors
    unknown = sorted(set(layout.axes) - set(tensors))
    if unknown:
        raise WidthError(f"the model must have the tensors that were traced, but lacks {', '.join(unknown[:5])}")
    chosen = cuts(layout, subnet)
    with torch.no_grad():
        sliced = {name: t.clone() for name, t in slice_tensors(tensors, layout, chosen).items()}
    optional = unsaved_buffers(model) - set(layout.axes)
    full_shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name not in optional}
    return rebuild(model, sliced, SlimRecord(widths, channels, units_of_channels or {}, layout, subnet, full_shapes))


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
