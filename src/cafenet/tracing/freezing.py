"""Freezes before any check: by kind of module, and by the user's wish."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from torch import nn

from cafenet.common.suggestions import did_you_mean
from cafenet.errors import TraceError
from cafenet.modules.head_attention import HeadAttention
from cafenet.tracing.atoms import AtomArray, Atoms

WHOLE_MODULES: dict[type[nn.Module], str] = {
    nn.RNNBase: "belongs to a recurrent layer, which packs its gates by hidden_size",
    nn.RNNCellBase: "belongs to a recurrent cell, which packs its gates by hidden_size",
}


def settle_modules(model: nn.Module, atoms: Atoms) -> None:
    """Freezes and ties what the kind of a module decides.

    Args:
        model: The traced model.
        atoms: Everything that the rules have recorded; freezes and ties are added to it.
    """
    freeze_whole_modules(model, atoms)
    tie_multihead_attention(model, atoms)


def freeze_whole_modules(model: nn.Module, atoms: Atoms) -> None:
    """Freezes every dimension of modules whose code fixes the relation between their sizes.

    Args:
        model: The traced model.
        atoms: Everything that the rules have recorded; the freezes are added to it.
    """
    for path, module in model.named_modules():
        for kind, reason in WHOLE_MODULES.items():
            if isinstance(module, kind):
                inside = {f"{path}.{name}" if path else name for name, _ in module.named_parameters()}
                for axis in atoms.axes:
                    if axis.tensor in inside:
                        atoms.freeze(np.arange(axis.first, axis.first + axis.size), reason, path)


def tie_multihead_attention(model: nn.Module, atoms: Atoms) -> None:
    """Ties the heads of every `nn.MultiheadAttention` to the features that it reads and returns, because its code takes
    the size of a head as `embed_dim // num_heads`.

    Args:
        model: The traced model.
        atoms: Everything that the rules have recorded; the ties are added to it.
    """
    axes = {(axis.tensor, axis.dim): label for axis, label in zip(atoms.axes, atoms.axis_labels, strict=True)}
    for path, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention) and not isinstance(module, HeadAttention):
            prefix = f"{path}." if path else ""
            stream = axes.get((f"{prefix}out_proj.weight", 0))
            read = axes.get((f"{prefix}in_proj_weight", 1), axes.get((f"{prefix}q_proj_weight", 1)))
            for label in (axes.get((f"{prefix}out_proj.weight", 1)), read):
                atoms.tie(stream, label, "belongs to nn.MultiheadAttention with one feature", path)


def freeze_named(model: nn.Module, atoms: Atoms, freeze: str | Sequence[str]) -> None:
    """Freezes the widths that the user wants to keep.

    Args:
        model: The traced model.
        atoms: Everything that the rules have recorded; the freezes are added to it.
        freeze: One name of a layer or several, with wildcards.

    Raises:
        TraceError: If a name matches no module or parameter, or would freeze nothing.
    """
    names = [freeze] if isinstance(freeze, str) else freeze
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise TraceError(f"freeze must be a name such as 'head' or '*.se', or several, but got {freeze!r}")
    if not names:
        return
    layers = {name for name, _ in model.named_modules() if name} | {name for name, _ in model.named_parameters()}
    for name in names:
        if not any(fnmatchcase(layer, name) for layer in layers):
            near = did_you_mean(name, sorted(layers), cutoff=0.4)
            raise TraceError(
                f"freeze names must match a module or parameter, but {name!r} matches none"
                + (f"; {near}" if near else "")
            )
    component = atoms.components()
    creators = _creators(atoms, component)
    narrow = _layers_of_one_channel(model)
    for name in names:
        _freeze_matches(atoms, name, creators, narrow, is_layer=_is_layer(model, name))
    for name in names:
        if not any(_inside(tensor, name) for tensor in narrow):  # the width of a narrow layer is already fixed
            _expect_effect(atoms, name, component, creators)


@dataclass(frozen=True, eq=False)
class _Creator:
    """A tensor that creates channels, and those of them that no earlier tensor creates."""

    tensor: str
    label: AtomArray
    first_here: AtomArray


def _creators(atoms: Atoms, component: AtomArray) -> list[_Creator]:
    bin_counts = np.zeros(int(component.max(initial=-1)) + 1, dtype=bool)
    starts = np.array([axis.first for axis in atoms.axes])
    creators = []
    for label in atoms.produced:
        if label.size:
            axis = atoms.axes[int(np.searchsorted(starts, label[0], side="right")) - 1]
            creators.append(_Creator(axis.tensor, label, label[~bin_counts[component[label]]]))
            bin_counts[component[label]] = True
    return creators


def _is_layer(model: nn.Module, name: str) -> bool:
    """Whether a name is that of a parameter, or of a module without submodules (parametrizations do not count)."""
    module = dict(model.named_modules()).get(name)
    return name in dict(model.named_parameters()) or (
        module is not None and all(child == "parametrizations" for child, _ in module.named_children())
    )


def _layers_of_one_channel(model: nn.Module) -> set[str]:
    """Weights of layers with a single output channel, which are in no group: a head of one class, a map."""
    return {
        f"{path}.weight" if path else "weight"
        for path, module in model.named_modules()
        if getattr(module, "out_channels", getattr(module, "out_features", None)) == 1
    }


def _freeze_matches(
    atoms: Atoms, name: str, creators: Sequence[_Creator], narrow: Collection[str], is_layer: bool
) -> None:
    """Freezes the output of a layer that is named exactly, or the groups that are named inside the matches of a
    name.
    """
    reason = f"is frozen by {name!r}"
    inside = [each for each in creators if _inside(each.tensor, name)]
    for creator in inside:
        is_own = is_layer or creator.tensor.rpartition(".")[0] == name
        atoms.freeze(creator.label if is_own else creator.first_here, reason, "")
    if is_layer and not inside and not any(_inside(tensor, name) for tensor in narrow):
        # A depthwise convolution, a norm or a PReLU: all its dimensions are those of its input.
        atoms.freeze(_atoms_inside(atoms, name), reason, "")


def _expect_effect(atoms: Atoms, name: str, component: AtomArray, creators: Sequence[_Creator]) -> None:
    """Refuses a name whose matches have no width, or whose widths all belong to groups named after other layers."""
    own = _atoms_inside(atoms, name)
    if not own.size:
        raise TraceError(f"freeze names must match a layer that has a width, but no match of {name!r} has one")
    if any(_inside(each.tensor, name) for each in creators):
        return
    frozen = np.concatenate([np.empty(0, dtype=np.int64), *(component[freeze.atoms] for freeze in atoms.freezes)])
    varying = np.setdiff1d(component[own], frozen)
    sources = [each.tensor for each in creators if np.isin(component[each.label], varying).any()]
    if sources:
        raise TraceError(
            f"freeze names must match layers that create channels, but those in the matches of {name!r} come "
            f"from others, such as {sources[0]}; freeze these, or give the exact name of a layer"
        )


def _atoms_inside(atoms: Atoms, name: str) -> AtomArray:
    axes = [np.arange(axis.first, axis.first + axis.size) for axis in atoms.axes if _inside(axis.tensor, name)]
    return np.concatenate([np.empty(0, dtype=np.int64), *axes])


def _inside(tensor: str, name: str) -> bool:
    """Whether the tensor or any module around it matches the name."""
    parts = tensor.split(".")
    return any(fnmatchcase(".".join(parts[:end]), name) for end in range(1, len(parts) + 1))
