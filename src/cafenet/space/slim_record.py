"""Conversion of a slim model's record to plain values in a file, and the checks of such values against a model.

A file may come from anywhere. Nothing in it is used before all of it is consistent: the layout with the model's tensors
and attributes, the channels with the layout, the widths with the channels, and the tensors with all of these.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cafenet.errors import SlimFileError
from cafenet.modules.tensors import named_tensors
from cafenet.space.extraction import SlimRecord
from cafenet.space.layout import AttributeSlot, IntArray, Layout, Subnet, num_positions


def as_plain(record: SlimRecord) -> dict[str, Any]:
    """Converts a record to dicts, lists, numbers, texts and tensors.

    Args:
        record: The record of a slim model.

    Returns:
        The content for a file, without the weights.
    """
    layout = record.layout
    return {
        "widths": record.widths,
        "channels": record.channels,
        "units_of_channels": {name: _as_tensor(units) for name, units in record.units_of_channels.items()},
        "patterns": [_as_tensor(pattern) for pattern in layout.patterns],
        "axes": {name: dict(dims) for name, dims in layout.axes.items()},
        "attributes": [
            [
                *(slot.module, slot.attribute, slot.pattern, slot.factor, slot.divisor, slot.as_tuple),
                *(-1 if slot.index is None else slot.index, list(slot.whole)),
            ]
            for slot in layout.attributes
        ],
        "full_shapes": {name: list(shape) for name, shape in record.full_shapes.items()},
        # Tensors whose queries were multiplied, so that the scale of attention is that of the full model. It is told
        # to those who read the file; the tensors hold the products.
        **({"scaled_for_attention": sorted(layout.scales_of)} if layout.scales else {}),
    }


def read_record(content: Mapping[str, Any], model: nn.Module) -> SlimRecord:
    """Reads the record from the content of a file.

    Args:
        content: The content of the file, which may be forged.
        model: The full-size model that the content must fit.

    Returns:
        The checked record.

    Raises:
        SlimFileError: If a part of the content does not fit the rest or the model.
    """
    full_shapes = {
        _text(name, "a tensor"): _row(shape, f"full_shapes of {name!r}")
        for name, shape in _dict(content, "full_shapes").items()
    }
    units = {name: _array(each, f"units of {name!r}") for name, each in _dict(content, "units_of_channels").items()}
    channels = {name: list(_row(each, f"channels of {name!r}")) for name, each in _dict(content, "channels").items()}
    if any(int(each.max()) >= len(each) for each in units.values()):
        raise SlimFileError("units_of_channels must hold at most as many units as channels, but hold more")
    if list(units) != list(channels):
        raise SlimFileError("channels and units_of_channels must be of the same groups, but are not")
    kept = tuple(_kept_units(name, channels[name], units[name]) for name in channels)
    widths = _dict(content, "widths")
    found = {name: len(each) for name, each in channels.items()}
    if widths != found:
        wrong = next(name for name in (*found, *widths) if widths.get(name) != found.get(name))
        raise SlimFileError(
            f"widths must be the numbers of channels, but {wrong!r} has width {widths.get(wrong)!r:.20} and "
            f"{found.get(wrong)} channels"
        )
    layout = _layout(content, [int(each.max()) + 1 for each in units.values()], full_shapes)
    _check_attributes(layout, model)
    return SlimRecord(dict(found), channels, units, layout, Subnet(kept), full_shapes)


def check_tensors(tensors: Any, record: SlimRecord, model: nn.Module, optional: set[str]) -> None:
    """Checks that every tensor is there in the shape that the record says, and holds the same kind of numbers as the
    model's.

    Args:
        tensors: The tensors of the file by name, not checked so far.
        record: The checked record of the same file.
        model: The full-size model.
        optional: Names of buffers that a forward creates on first use, which may be absent.

    Raises:
        SlimFileError: If a tensor is missing, unknown, of another shape or kind, or not backed by memory.
    """
    if not isinstance(tensors, dict) or not all(isinstance(each, Tensor) for each in tensors.values()):
        raise SlimFileError("tensors must be a dict of tensors, but is not")
    shapes = record.shapes()
    missing = sorted(set(shapes) - set(tensors))
    unknown = sorted(map(str, set(tensors) - set(shapes) - optional))
    if missing:
        raise SlimFileError(f"it is not complete: it lacks {', '.join(missing[:5])}")
    if unknown:
        raise SlimFileError(f"it holds tensors that the model has not: {', '.join(unknown[:5])}")
    kinds = {name: tensor.is_floating_point() for name, tensor in named_tensors(model).items()}
    for name, shape in shapes.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != shape:
            raise SlimFileError(f"{name} must have shape {list(shape)} at these widths, but has {list(tensor.shape)}")
        if tensor.is_floating_point() != kinds[name]:
            raise SlimFileError(f"{name} must hold numbers as the model's does, but is {tensor.dtype}")
    hollow = [name for name, tensor in tensors.items() if not is_dense(tensor)]
    if hollow:
        raise SlimFileError(f"{hollow[0]} must hold a number for each of its places, but does not")


def is_dense(tensor: Tensor) -> bool:
    """Whether a tensor has memory for every element; an expanded tensor of a single number may claim terabytes.

    Args:
        tensor: The tensor to check.

    Returns:
        True for dense tensors and for meta tensors.
    """
    if tensor.layout is not torch.strided or tensor.is_meta:
        return tensor.is_meta
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def _kept_units(group: str, channels: list[int], units: IntArray) -> IntArray:
    """Finds the units of a group's kept channels, and refuses units that are kept only in part."""
    row = np.array(channels, dtype=np.int64)
    if not len(row) or row[0] < 0 or row[-1] >= len(units) or (np.diff(row) <= 0).any():
        raise SlimFileError(
            f"channels of {group!r} must be rising numbers from 0 to {len(units) - 1}, but are {channels!s:.60}"
        )
    kept = np.unique(units[row])
    if not np.array_equal(np.flatnonzero(np.isin(units, kept)), row):
        raise SlimFileError(f"channels of {group!r} that go together must all be there, but some are not")
    return kept


def _layout(content: Mapping[str, Any], num_units: list[int], full_shapes: Mapping[str, tuple[int, ...]]) -> Layout:
    group_of_unit = np.repeat(np.arange(len(num_units)), num_units)
    patterns = tuple(_pattern(each) for each in _list(content, "patterns"))
    if any(int(each.max()) >= len(group_of_unit) for each in patterns):
        raise SlimFileError(f"patterns must hold units up to {len(group_of_unit) - 1}, but hold others")
    axes: dict[str, dict[int, int]] = {}
    for name, dims in _dict(content, "axes").items():
        shape = full_shapes.get(name, ())
        for dim, pattern in _dict({"axes": dims}, "axes").items():
            is_known = _is_index(dim, len(shape)) and _is_index(pattern, len(patterns))
            if not is_known or num_positions(patterns[pattern]) != shape[dim]:
                raise SlimFileError(f"axes must name dimensions of the model's tensors, but {name!r}, {dim!r} is none")
        axes[name] = dict(dims)
    return Layout(patterns, axes, tuple(map(_slot, _list(content, "attributes"))), group_of_unit)


def _slot(entry: Any) -> AttributeSlot:
    kinds = (str, str, int, int, int, bool, int, list)
    is_slot = isinstance(entry, list) and tuple(map(type, entry)) == kinds
    if not is_slot or min(entry[2:5]) < 0 or entry[4] == 0 or not -1 <= entry[6] < max(len(entry[7]), 1):
        raise SlimFileError(f"an attribute must have a module, a name and how it follows widths, but is {entry!r:.60}")
    module, attribute, pattern, factor, divisor, as_tuple, index, whole = entry
    sizes = _row(whole, "an attribute's sizes")
    return AttributeSlot(module, attribute, pattern, factor, divisor, as_tuple, None if index < 0 else index, sizes)


def _check_attributes(layout: Layout, model: nn.Module) -> None:
    """Refuses attributes that are not sizes of the full model, or that do not follow one of its widths."""
    modules = dict(model.named_modules())
    for slot in layout.attributes:
        name = f"{slot.module}.{slot.attribute}".lstrip(".")
        value = vars(modules[slot.module]).get(slot.attribute) if slot.module in modules else None
        value = tuple(value) if isinstance(value, list) else value
        is_size = type(value) is int or (isinstance(value, tuple) and all(type(each) is int for each in value))
        is_known = slot.pattern < len(layout.patterns)
        full = slot.value(num_positions(layout.patterns[slot.pattern]), value) if is_known else None
        if not is_size or full is None or value != full:
            raise SlimFileError(f"attributes must be sizes of layers that follow their widths, but {name} is none")


def _as_tensor(array: IntArray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))


def _pattern(value: Any) -> IntArray:
    """Reads a pattern, which has two rows where positions belong to a head and to a feature of every head."""
    if isinstance(value, Tensor) and value.ndim == 2 and value.shape[0] == 2:
        return np.stack([_array(row.contiguous(), "a pattern", least=-1) for row in value])
    return _array(value, "a pattern", least=-1)


def _array(value: Any, name: str, least: int = 0) -> IntArray:
    is_row = isinstance(value, Tensor) and value.dtype == torch.int64 and value.ndim == 1 and value.numel() > 0
    if not is_row or not is_dense(value) or int(value.min()) < least:
        raise SlimFileError(f"{name} must be whole numbers of at least {least}, but are not")
    array: IntArray = value.numpy()
    return array


def _row(value: Any, name: str) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or not all(type(each) is int for each in value):
        raise SlimFileError(f"{name} must be a list of whole numbers, but is {value!r:.60}")
    return tuple(value)


def _is_index(value: Any, length: int) -> bool:
    return type(value) is int and 0 <= value < length


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise SlimFileError(f"{name} must have a text as its name, but has {value!r:.60}")
    return value


def _dict(content: Mapping[str, Any], name: str) -> dict[Any, Any]:
    if not isinstance(content[name], dict):
        raise SlimFileError(f"{name} must be a dict, but is {content[name]!r:.60}")
    found: dict[Any, Any] = content[name]
    return found


def _list(content: Mapping[str, Any], name: str) -> list[Any]:
    if not isinstance(content[name], list):
        raise SlimFileError(f"{name} must be a list, but is {content[name]!r:.60}")
    found: list[Any] = content[name]
    return found
