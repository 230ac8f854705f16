"""Construction of a WidthSpace from finished runs: patterns, attribute slots, costs and group names."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from cafenet.space.cost import Cost, FloatArray, Product
from cafenet.space.layout import AttributeSlot, IntArray, Layout, ScaleSlot
from cafenet.space.width_group import Frozen, WidthGroup
from cafenet.space.width_space import WidthSpace
from cafenet.tracing.atoms import AtomArray, Atoms, Axis, DimLabel
from cafenet.tracing.explained import explain_parameters
from cafenet.tracing.grouping import Group, Grouping, group_units
from cafenet.tracing.recording import Run

SIZE_MARK = "@head_size"
"""End of the name of a group that is the size of heads: `"blocks.0.attn.qkv@head_size"`."""


def build_space(
    model: nn.Module, atoms: Atoms, runs: Sequence[Run], unused: Sequence[str], min_width: int | float
) -> WidthSpace:
    """Sorts the atoms into groups, and prices them by the first run, which was in eval mode.

    Args:
        model: The traced model.
        atoms: Everything that the rules have recorded.
        runs: All finished runs, the one in eval mode first.
        unused: Names of parameters that no run has read.
        min_width: Smallest width of each group, as a number of channels (int) or as a share of the group (float).

    Returns:
        The width space, perhaps without groups.
    """
    grouping = group_units(atoms)
    layout = layout_of(model, atoms, runs, grouping)
    units = np.array([group.units.size for group in grouping.groups], dtype=np.int64)
    forms = _Forms(grouping, units)
    flops = Cost([forms.product(term.constant, term.sizes) for term in runs[0].terms], units)
    price_params = partial(_parameter_cost, model, atoms, forms, units)
    gradient = flops.gradient()
    shown = _shown_tensors(model)
    names = _names(grouping.groups, shown, atoms.first_of_sizes)
    groups = []
    for number, group in enumerate(grouping.groups):
        copies = atoms.copies.get(group.axis.first, 1)
        channels = group.positions.size * copies
        divisor = channels // group.units.size
        groups.append(
            WidthGroup(
                name=names[number],
                channels=channels,
                divisor=divisor,
                min_width=max(_smallest(min_width, channels, divisor), group.min_units * divisor),
                sensitivity=float(gradient[number]) / divisor,
                mixes=group.mixes,
                unit_of_channel=np.tile(_unit_of_channel(grouping, group), copies),
                _layout=layout,
                _number=number,
            )
        )
    first = atoms.first_of_sizes
    frozen = [
        Frozen(_layer(axis.tensor, shown) + _mark_of_sizes(axis, first), axis.size, reason)
        for axis, reason in grouping.frozen
    ]
    frozen += [Frozen(layer, 1, "has one channel") for layer in _single_channel_layers(model)]
    frozen += _unused_layers(model, unused)
    frozen = explain_parameters(model, atoms, grouping, frozen, partial(_layer, shown=shown))
    return WidthSpace(model, tuple(groups), tuple(frozen), layout, flops, price_params)


def _single_channel_layers(model: nn.Module) -> list[str]:
    """Lists the layers with one output channel, whose width cannot vary."""
    return [
        path
        for path, module in model.named_modules()
        if (isinstance(module, _ConvNd) and module.out_channels == 1)
        or (isinstance(module, nn.Linear) and module.out_features == 1)
    ]


def _unused_layers(model: nn.Module, unused: Sequence[str]) -> list[Frozen]:
    """Lists the layers that no run has used; they are frozen, because it is unknown what they would read."""
    layers: dict[str, int] = {}
    for name in unused:
        shape = model.get_parameter(name).shape
        layers.setdefault(name.rpartition(".")[0] or name, shape[0] if shape else 1)
    return [Frozen(layer, channels, "is not used when the model runs") for layer, channels in layers.items()]


def layout_of(model: nn.Module, atoms: Atoms, runs: Sequence[Run], grouping: Grouping) -> Layout:
    """Finds the positions of the units, with one pattern for each distinct arrangement of units along a dimension.

    Args:
        model: The traced model.
        atoms: Everything that the rules have recorded.
        runs: All finished runs.
        grouping: The groups and units of the atoms.

    Returns:
        The layout of the model's tensors and attributes.
    """
    patterns: list[IntArray] = []
    numbers: dict[bytes, int] = {}

    def number_of(units: IntArray) -> int:
        if units.ndim > 1:
            units = units[(units >= 0).any(axis=1)]
            units = units[0] if len(units) == 1 else units
        key = units.tobytes()
        if key not in numbers:
            numbers[key] = len(patterns)
            patterns.append(units)
        return numbers[key]

    units_of_axes: dict[tuple[str, int], list[IntArray]] = {}
    for axis in atoms.axes:
        units = grouping.unit_of_atom[axis.first : axis.first + axis.size]
        if (units >= 0).any():
            units_of_axes.setdefault((axis.tensor, axis.dim), []).append(units)
    axes: dict[str, dict[int, int]] = {}
    for (tensor, dim), rows in units_of_axes.items():
        axes.setdefault(tensor, {})[dim] = number_of(rows[0] if len(rows) == 1 else np.stack(rows))
    found = list(_parameter_attributes(model, axes))
    found += _size_attributes(model, atoms, grouping, axes, number_of)
    slots = {(slot.module, slot.attribute, slot.index): slot for slot in found}
    for attribute in (attribute for run in runs for attribute in run.attributes):
        units = _units_of(grouping, attribute.label)
        if (units >= 0).any() and attribute.key not in slots:
            path, name, index = attribute.key
            whole = attribute.source.whole if attribute.source else ()
            slots[attribute.key] = AttributeSlot(
                path, name, number_of(units), as_tuple=attribute.per_element, index=index, whole=whole
            )
    scales = tuple(_scale_slots(atoms, grouping, number_of))
    return Layout(tuple(patterns), axes, tuple(slots.values()), grouping.group_of_unit, scales)


def _scale_slots(atoms: Atoms, grouping: Grouping, number_of: Callable[[IntArray], int]) -> Iterable[ScaleSlot]:
    """Finds the tensors that make queries whose scale follows the size of a head."""
    for fold in atoms.scales:
        units = _units_of(grouping, fold.features)
        if not (units >= 0).any():
            continue
        for axis in atoms.axes:
            inside = fold.atoms[(fold.atoms >= axis.first) & (fold.atoms < axis.first + axis.size)] - axis.first
            if inside.size:
                mask = np.zeros(axis.size, dtype=bool)
                mask[inside] = True
                yield ScaleSlot(axis.tensor, axis.dim, mask, number_of(units))


def _size_attributes(
    model: nn.Module,
    atoms: Atoms,
    grouping: Grouping,
    axes: Mapping[str, Mapping[int, int]],
    number_of: Callable[[IntArray], int],
) -> list[AttributeSlot]:
    """Sets the number and the size of the heads of `nn.MultiheadAttention` apart where the size varies."""
    found: list[AttributeSlot] = []
    for path, module in model.named_modules():
        if not isinstance(module, nn.MultiheadAttention) or atoms.first_of_sizes is None:
            continue
        name = f"{path}.out_proj.weight" if path else "out_proj.weight"
        rows = [
            grouping.unit_of_atom[axis.first : axis.first + axis.size]
            for axis in atoms.axes
            if (axis.tensor, axis.dim) == (name, 1)
        ]
        if 1 in axes.get(name, {}) and len(rows) == 2:
            found.append(AttributeSlot(path, "num_heads", number_of(rows[0]), divisor=module.head_dim))
            found.append(AttributeSlot(path, "head_dim", number_of(rows[1]), divisor=module.num_heads))
    return found


def _units_of(grouping: Grouping, label: IntArray) -> IntArray:
    return np.where(label >= 0, grouping.unit_of_atom[label], -1)


def _parameter_attributes(model: nn.Module, axes: dict[str, dict[int, int]]) -> Iterable[AttributeSlot]:
    """Finds the size attributes of PyTorch's own layers by the dimensions of their parameters."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for path, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            yield from _attention_attributes(path, module, axes)
        if isinstance(module, nn.Transformer):
            norm = getattr(module.encoder, "norm", None)
            stream = axes.get(names.get(id(_stored_weight(norm)), ""), {}) if isinstance(norm, nn.Module) else {}
            yield from _slots(path, stream, {0: "d_model"})
        dims = axes.get(names.get(id(_stored_weight(module)), ""), {})
        if not dims:
            continue
        if isinstance(module, _ConvNd):
            yield from _conv_attributes(path, module, dims)
        elif isinstance(module, nn.Linear):
            yield from _slots(path, dims, {1: "in_features", 0: "out_features"})
        elif isinstance(module, _NormBase):
            yield from _slots(path, dims, {0: "num_features"})
        elif isinstance(module, nn.Embedding):
            yield from _slots(path, dims, {1: "embedding_dim"})
        elif isinstance(module, nn.RMSNorm) and len(module.normalized_shape) == 1:
            yield AttributeSlot(path, "normalized_shape", dims[0], as_tuple=True)
        elif isinstance(module, nn.PReLU):
            yield from _slots(path, dims, {0: "num_parameters"})
        elif type(module).__name__ == "Conv1D" and {"nf", "nx"} <= vars(module).keys():  # a linear layer of GPT-2
            yield from _slots(path, dims, {0: "nx", 1: "nf"})


def _attention_attributes(
    path: str, module: nn.MultiheadAttention, dims: dict[str, dict[int, int]]
) -> Iterable[AttributeSlot]:
    """The projection of the output reads the features of all heads, and makes the features of the stream."""
    prefix = f"{path}." if path else ""
    out = dims.get(f"{prefix}out_proj.weight", {})
    yield from _slots(path, out, {0: "embed_dim"})
    if 1 in out:
        yield AttributeSlot(path, "num_heads", out[1], divisor=module.head_dim)
    for name, attribute in (("k_proj_weight", "kdim"), ("v_proj_weight", "vdim")):
        found = dims.get(f"{prefix}in_proj_weight", {}) or dims.get(f"{prefix}{name}", {})
        yield from _slots(path, found, {1: attribute})


def _stored_weight(module: nn.Module) -> nn.Parameter | None:
    """A layer's weight, or the parameter of the same shape from which pruning or a parametrization computes it.

    `getattr` is not used, because it would run a parametrization, which may write to buffers.
    """
    weight = module._parameters.get("weight")
    if weight is not None:
        return weight
    found = [module._parameters.get(name) for name in ("weight_orig", "weight_v")]
    parametrizations = module._modules.get("parametrizations")
    if isinstance(parametrizations, nn.ModuleDict) and "weight" in parametrizations:
        found += parametrizations["weight"]._parameters.values()
    shape = _weight_shape(module)
    return next((each for each in found if each is not None and tuple(each.shape) == shape), None)


def _weight_shape(module: nn.Module) -> tuple[int, ...] | None:
    if isinstance(module, _ConvNd):
        ends = (module.in_channels, module.out_channels)
        first, second = ends if isinstance(module, _ConvTransposeNd) else reversed(ends)
        return (first, second // module.groups, *module.kernel_size)
    if isinstance(module, nn.Linear):
        return (module.out_features, module.in_features)
    if isinstance(module, nn.Embedding):
        return (module.num_embeddings, module.embedding_dim)
    return None


def _slots(path: str, dims: dict[int, int], attributes: dict[int, str]) -> Iterable[AttributeSlot]:
    for dim, attribute in attributes.items():
        if dim in dims:
            yield AttributeSlot(path, attribute, dims[dim])


def _conv_attributes(path: str, conv: _ConvNd, dims: dict[int, int]) -> Iterable[AttributeSlot]:
    transposed = isinstance(conv, _ConvTransposeNd)
    ins, outs = (0, 1) if transposed else (1, 0)
    if conv.groups > 1 and conv.groups == conv.in_channels:
        multiplier = conv.out_channels // conv.in_channels
        if 0 in dims:
            per_channel = 1 if transposed else multiplier
            yield AttributeSlot(path, "groups", dims[0], divisor=per_channel)
            yield AttributeSlot(path, "in_channels", dims[0], divisor=per_channel)
            yield AttributeSlot(path, "out_channels", dims[0], factor=multiplier, divisor=per_channel)
        return
    # The weight's second dimension counts the channels of one group only.
    if ins in dims:
        yield AttributeSlot(path, "in_channels", dims[ins], factor=conv.groups if ins == 1 else 1)
    if outs in dims:
        yield AttributeSlot(path, "out_channels", dims[outs], factor=conv.groups if outs == 1 else 1)


class _Forms:
    """Dimension sizes as linear forms in the numbers of units: (fixed part, coefficient per group)."""

    def __init__(self, grouping: Grouping, units: IntArray) -> None:
        self._grouping, self._units = grouping, units
        self._by_label: dict[int, FloatArray] = {}  # labels live as long as the run, so their ids are unique
        self._by_units: dict[bytes, FloatArray] = {}

    def product(self, constant: int, sizes: Iterable[tuple[int, DimLabel]]) -> Product:
        forms: list[FloatArray] = []
        for size, label in sizes:
            if label is None:
                constant *= size
            elif label.ndim == 1:
                forms.append(self._form(label))
            else:
                factor, both = self._forms_of_both(label)
                constant *= factor
                forms += both
        return Product(constant, tuple(forms))

    def _forms_of_both(self, label: IntArray) -> tuple[int, list[FloatArray]]:
        """Counts the positions that a head and a feature of it both keep: 6 rows are 2 heads times 3 features."""
        rows = [row for row in label if (_units_of(self._grouping, row) >= 0).any()]
        forms = [self._count(_units_of(self._grouping, row)) for row in rows]
        if len(forms) < 2:
            return (1, forms) if forms else (label.shape[1], [])
        divisors = [int(np.gcd.reduce(form[form != 0].astype(np.int64))) for form in forms]
        factor = math.prod(divisors) // label.shape[1]
        return factor, [form / divisor for form, divisor in zip(forms, divisors, strict=True)]

    def _form(self, label: IntArray) -> FloatArray:
        if id(label) not in self._by_label:
            units = _units_of(self._grouping, label)
            key = units.tobytes()
            if key not in self._by_units:
                self._by_units[key] = self._count(units)
            self._by_label[id(label)] = self._by_units[key]
        return self._by_label[id(label)]

    def _count(self, units: IntArray) -> FloatArray:
        varying = units[units >= 0]
        counts = np.bincount(self._grouping.group_of_unit[varying], minlength=self._units.size)
        return np.concatenate([[units.size - varying.size], counts / np.maximum(self._units, 1)])


def _parameter_cost(model: nn.Module, atoms: Atoms, forms: _Forms, units: IntArray) -> Cost:
    """Builds the number of parameters: one product of dimension sizes per parameter."""
    labels: dict[str, dict[int, list[AtomArray]]] = {name: {} for name, _ in model.named_parameters()}
    for axis, label in zip(atoms.axes, atoms.axis_labels, strict=True):
        if axis.tensor in labels:
            labels[axis.tensor].setdefault(axis.dim, []).append(label)
    sizes = [
        [(each[0].size, each[0] if len(each) == 1 else np.stack(each)) for each in dims.values()]
        for dims in labels.values()
    ]
    return Cost([forms.product(1, dims) for dims in sizes], units)


def _unit_of_channel(grouping: Grouping, group: Group) -> IntArray:
    return grouping.unit_of_atom[group.axis.first + group.positions] - int(group.units[0])


def _smallest(min_width: int | float, channels: int, divisor: int) -> int:
    """Rounds the requested minimum up to whole units of the group, but not above the size of the group."""
    asked = math.ceil(min_width * channels) if isinstance(min_width, float) else min_width
    return min(channels, math.ceil(asked / divisor) * divisor)


def _shown_tensors(model: nn.Module) -> dict[str, str]:
    """Maps tensors to the names that users know: a mask to its parameter, and a stored parameter to the weight made
    from it.
    """
    shown: dict[str, str] = {}
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        for name in module._parameters:
            known = name.removesuffix("_orig")
            if known != name and f"{known}_mask" in module._buffers:  # pruned
                shown |= {f"{prefix}{name}": f"{prefix}{known}", f"{prefix}{known}_mask": f"{prefix}{known}"}
            elif known != name and f"{known}_u" in module._buffers:  # spectral norm as a hook
                shown[f"{prefix}{name}"] = f"{prefix}{known}"
            elif name.endswith("_v") and f"{name[:-2]}_g" in module._parameters:  # weight norm as a hook
                shown |= {f"{prefix}{each}": f"{prefix}{name[:-2]}" for each in (name, f"{name[:-2]}_g")}
        parametrizations = module._modules.get("parametrizations")
        if isinstance(parametrizations, nn.ModuleDict):
            for known, parts in parametrizations.items():
                inside = f"{prefix}parametrizations.{known}"
                shown |= {f"{inside}.{name}": f"{prefix}{known}" for name in parts._parameters}
    return shown


def _mark_of_sizes(axis: Axis, first_of_sizes: int | None) -> str:
    return SIZE_MARK if first_of_sizes is not None and axis.first >= first_of_sizes else ""


def _layer(tensor: str, shown: dict[str, str]) -> str:
    """The name that users know: the module of a weight, or the name of a parameter that belongs to no layer."""
    tensor = shown.get(tensor, tensor)
    module, _, parameter = tensor.rpartition(".")
    return module if parameter == "weight" and module else tensor


def _names(groups: tuple[Group, ...], shown: dict[str, str], first_of_sizes: int | None) -> list[str]:
    """Names each group after the layer that creates its first channel; a second group of one layer adds its
    position, and a size of heads says so.
    """
    names: list[str] = []
    for group in groups:
        tensor, position = group.axis.tensor, group.positions[0]
        name = _layer(tensor, shown) + _mark_of_sizes(group.axis, first_of_sizes)
        wanted = (name, f"{name}@{position}", tensor, f"{tensor}@{position}")
        numbered = (f"{tensor}@{position}.{number}" for number in itertools.count(2))
        names.append(next(each for each in itertools.chain(wanted, numbered) if each not in names))
    return names
