"""Extraction of a slim model from a subnet: a plain module of the original class with smaller layers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from cafenet.errors import WidthError
from cafenet.modules.copying import RECORD, copy_of
from cafenet.modules.tensors import named_tensors, unsaved_buffers
from cafenet.space.layout import Cut, IntArray, Layout, Subnet, cuts
from cafenet.space.slicing import AttributeValues, attribute_values, slice_tensors


@dataclass(frozen=True, eq=False)
class SlimRecord:
    """The origin of a slim model, with which it can be saved, checked and rebuilt without tracing again."""

    widths: dict[str, int]
    """Width of each group."""
    channels: dict[str, list[int]]
    """Kept channels of each group, as numbers in the full model."""
    units_of_channels: Mapping[str, IntArray]
    """Unit of every channel of a group, counted from 0 inside the group."""
    layout: Layout
    """Positions of the units in the full model."""
    subnet: Subnet
    """The kept units."""
    full_shapes: dict[str, tuple[int, ...]]
    """Shapes in the full model of all tensors, except unsaved buffers without channels (a table of positions)."""

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        """The kept positions of every pattern of the layout."""
        return cuts(self.layout, self.subnet)

    @property
    def attributes(self) -> AttributeValues:
        """Values of the attributes that follow widths, in the slim model."""
        return attribute_values(self.layout, self.cuts)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Computes the shapes of the slim model's tensors.

        Returns:
            The shape of every tensor of `full_shapes`.
        """
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
    """Builds the slim model of a subnet, without making a full copy of the model.

    Args:
        model: The full-size model, which is not changed.
        layout: Positions of the units in the model.
        subnet: The units to keep.
        widths: Width of each group, for the record.
        channels: Kept channels of each group, for the record.
        tensors: Tensors to cut instead of the model's own, with the same names and shapes.
        units_of_channels: Unit of every channel of each group. A slim model without them cannot be saved.

    Returns:
        The slim model, with its record as an attribute.

    Raises:
        WidthError: If the model lacks a tensor of the layout.
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
    """Copies a model around other tensors, and sets the attributes of a record.

    Args:
        model: The full-size model, which is not changed.
        tensors: Tensors of the slim model by name.
        record: The record of the slim model.

    Returns:
        The slim model.
    """
    memo: dict[int, object] = {}
    for name, parameter in model.named_parameters():
        replacement = nn.Parameter(tensors[name].to(parameter.device), requires_grad=parameter.requires_grad)
        memo[id(parameter)] = replacement
    for name, buffer in model.named_buffers():
        if name in tensors:  # otherwise a forward created the buffer after the tensors were taken; it has no channels
            memo[id(buffer)] = tensors[name].to(buffer.device)
    slim = copy_of(model, memo)
    for (path, attribute), value in record.attributes.items():
        module = slim.get_submodule(path)
        is_list = isinstance(getattr(module, attribute, None), list)  # records and files hold it as a tuple
        setattr(module, attribute, list(value) if is_list and isinstance(value, tuple) else value)
    _compute_hooked_weights(slim)
    setattr(slim, RECORD, record)
    return slim


def _compute_hooked_weights(slim: nn.Module) -> None:
    """Recomputes `weight` in layers with hooks of torch's pruning, weight norm or spectral norm.

    These hooks keep `weight` as a plain tensor, which has the old size until they run. The hook of spectral norm is not
    run, because in train mode it would write to its buffers.
    """
    for module in slim.modules():
        for hook in module._forward_pre_hooks.values():
            with torch.no_grad():
                if isinstance(hook, (BasePruningMethod, WeightNorm)):
                    hook(module, ())
                elif isinstance(hook, SpectralNorm):
                    setattr(module, hook.name, hook.compute_weight(module, do_power_iteration=False))
