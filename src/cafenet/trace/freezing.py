"""What is kept whole before anything is checked: by kind of module, and by the user's wish."""

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

import numpy as np
from torch import nn

from cafenet.errors import TraceError
from cafenet.trace.atoms import Atoms

WHOLE_MODULES: dict[type[nn.Module], str] = {
    nn.MultiheadAttention: "belongs to nn.MultiheadAttention, which derives its head size from embed_dim",
    nn.RNNBase: "belongs to a recurrent layer, which packs its gates by hidden_size",
    nn.RNNCellBase: "belongs to a recurrent cell, which packs its gates by hidden_size",
}


def freeze_whole_modules(model: nn.Module, atoms: Atoms) -> None:
    """Freeze every dimension of modules whose code fixes the relation between their sizes."""
    for path, module in model.named_modules():
        for kind, reason in WHOLE_MODULES.items():
            if isinstance(module, kind):
                inside = {f"{path}.{name}" if path else name for name, _ in module.named_parameters()}
                for axis in atoms.axes:
                    if axis.tensor in inside:
                        atoms.freeze(np.arange(axis.first, axis.first + axis.size), reason, path)


def freeze_named(model: nn.Module, atoms: Atoms, freeze: str | Sequence[str]) -> None:
    """Freeze the widths that the user wants to keep; a pattern that names nothing in the model is a mistake."""
    patterns = [freeze] if isinstance(freeze, str) else freeze
    if not isinstance(patterns, Sequence) or not all(isinstance(pattern, str) for pattern in patterns):
        raise TraceError(f"freeze must be a name pattern such as 'head' or '*.se', or several, but got {freeze!r}")
    if not patterns:
        return
    layers = {name for name, _ in model.named_modules() if name} | {name for name, _ in model.named_parameters()}
    for pattern in patterns:
        if not any(fnmatchcase(layer, pattern) for layer in layers):
            near = get_close_matches(pattern, sorted(layers), n=3, cutoff=0.4)
            raise TraceError(
                f"freeze patterns must match a module or parameter, but {pattern!r} matches none"
                + (f"; did you mean {', '.join(near)}?" if near else "")
            )
    _freeze_produced(atoms, patterns)


def _freeze_produced(atoms: Atoms, patterns: Sequence[str]) -> None:
    """A layer's exact name freezes what it produces; a pattern freezes groups that are named inside its matches."""
    component = atoms.components()
    taken = np.zeros(int(component.max(initial=-1)) + 1, dtype=bool)
    starts = np.array([axis.first for axis in atoms.axes])
    for label in atoms.produced:
        if not label.size:
            continue
        axis = atoms.axes[int(np.searchsorted(starts, label[0], side="right")) - 1]
        owner = axis.tensor.rpartition(".")[0]
        first_here = label[~taken[component[label]]]
        taken[component[label]] = True
        for pattern in patterns:
            if pattern in (owner, axis.tensor):
                atoms.freeze(label, f"is frozen by {pattern!r}", "")
            elif _inside(axis.tensor, pattern):
                atoms.freeze(first_here, f"is frozen by {pattern!r}", "")


def _inside(tensor: str, pattern: str) -> bool:
    """Whether the tensor or any module around it matches."""
    parts = tensor.split(".")
    return any(fnmatchcase(".".join(parts[:end]), pattern) for end in range(1, len(parts) + 1))
