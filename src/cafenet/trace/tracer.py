"""`trace`: from a model and example inputs to its width space."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from cafenet.calling import call, call_arguments, named_tensors, to_meta, training_mode, unwrap, without_trace
from cafenet.errors import TraceError
from cafenet.space import WidthSpace
from cafenet.trace.atoms import Atoms
from cafenet.trace.build import build_space
from cafenet.trace.check import find_faults
from cafenet.trace.freezing import freeze_named, freeze_whole_modules
from cafenet.trace.rules import RuleTable
from cafenet.trace.run import ModulePaths, Rule, Run, WatchMode, raw_labels


def trace(
    model: nn.Module,
    example_inputs: Any,
    *,
    freeze: str | Sequence[str] = (),
    min_width: int | float = 1,
    rules: Mapping[Any, Rule] | None = None,
    verify: bool = True,
) -> WidthSpace:
    """Find the widths that may vary in any model, by watching one run of it. The model is not changed.

    example_inputs: a tensor, a tuple of positional arguments or a dict of keyword arguments; FLOPs are counted for
        exactly these, so use a batch of one.
    freeze: name patterns (`"head"`, `"*.se"`): widths of layers with such a name, or inside such a module, stay. The
        exact name of a layer freezes that layer's output width even if the group is named after another layer.
    min_width: the smallest width of each group: an int counts channels, a float below 1 is a share of the group.
    rules: op rules to add or replace, by aten op; see CONTRIBUTING.md.
    verify: run the model once more with every group cut differently and compare the shape of every intermediate
        result with what the trace predicts; groups that the model's code does not let vary are frozen.
    """
    model = unwrap(model)
    args, kwargs = call_arguments(example_inputs)
    table = RuleTable(rules)
    watched = _watch(model, args, kwargs, table)
    freeze_whole_modules(model, watched.run.atoms)
    freeze_named(model, watched.run.atoms, [freeze] if isinstance(freeze, str) else list(freeze))
    if verify:
        find_faults(model, watched.run, watched.tensors, watched.args, watched.kwargs)
    space = build_space(model, watched.run, min_width)
    if not space.groups:
        raise TraceError(
            "a width space must have at least one searchable group, but every layer is frozen:\n"
            + "\n".join(f"  {entry.name}: {entry.reason}" for entry in space.frozen[:20])
            + ("\n  (no layer creates channels)" if not space.frozen else "")
        )
    return space


@dataclass(frozen=True, eq=False)
class Watched:
    """A finished run, and what it was run on, so that it can be repeated."""

    run: Run
    tensors: dict[str, Tensor]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _watch(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], table: RuleTable) -> Watched:
    """Watch an eval run on meta tensors; on real ones where the model reads values."""
    originals = named_tensors(model)
    try:
        return _watch_on(model, to_meta(originals), *to_meta((args, kwargs)), table)
    except Exception as error:  # the model may read values or mix devices: only a real run can tell
        meta_error = error
    try:
        return _watch_on(model, without_trace(model, originals), args, kwargs, table)
    except Exception as error:
        raise TraceError(
            f"the model must run on the example inputs, but its forward raised {type(error).__name__}: {error}"
        ) from (error if originals and not next(iter(originals.values())).is_meta else meta_error)


def _watch_on(
    model: nn.Module, tensors: dict[str, Tensor], args: tuple[Any, ...], kwargs: dict[str, Any], table: RuleTable
) -> Watched:
    run = Run(Atoms())
    for name, tensor in tensors.items():
        run.label(tensor, [run.atoms.new_axis(name, d, n) if n > 1 else None for d, n in enumerate(tensor.shape)])
    output = _run_watched(model, run, tensors, args, kwargs, table, training=False)
    for leaf in tree_flatten(output)[0]:
        if isinstance(leaf, Tensor):
            for label in raw_labels(leaf):
                run.atoms.freeze(label, "is an output of the model", "")
    return Watched(run, tensors, args, kwargs)


def _run_watched(
    model: nn.Module,
    run: Run,
    tensors: dict[str, Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    table: RuleTable,
    training: bool,
) -> Any:
    paths = ModulePaths(model)
    with torch.no_grad(), training_mode(model, training), paths.watching(), WatchMode(run, table, paths):
        return call(model, tensors, args, kwargs)
