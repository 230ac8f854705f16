"""Watching the model run: in eval mode on meta tensors, with values beside them where it reads some, and in train mode
too where that shows parameters which the eval run did not touch (auxiliary heads)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from cafenet.errors import TraceError
from cafenet.modules.calling import call, copied, named_tensors, to_meta, training_mode, without_trace
from cafenet.modules.outputs import chosen_outputs, has_outputs, output_reason
from cafenet.modules.randomness import fixed_randomness
from cafenet.tracing.atoms import Atoms
from cafenet.tracing.attribute_sizes import noted_sizes
from cafenet.tracing.recording import ModulePaths, Run, WatchMode, raw_labels
from cafenet.tracing.rules.table import RuleTable
from cafenet.tracing.values import Values

_NUM_RANDOM_PASSES = 4
"""Passes in train mode of a model that draws random numbers there: each may skip other layers (LayerDrop)."""


@dataclass(frozen=True, eq=False)
class Ground:
    """What the model is run on: its tensors, its inputs, and whether meta tensors know their values."""

    tensors: dict[str, Tensor]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    values: Values | None


@dataclass(frozen=True, eq=False)
class Pass:
    """One finished run, and what it was run on, so that it can be repeated."""

    run: Run
    training: bool
    ground: Ground
    seed: int = 0
    """Decides all random numbers, so that the same layers are skipped when the pass is repeated."""


def watch(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], table: RuleTable
) -> tuple[Atoms, list[Pass], list[str]]:
    """All channels of the model, the passes in which they were followed (eval first), and unused parameters."""
    for ground in _grounds(model, args, kwargs):
        try:
            return _watch_on(model, ground, table)
        except TraceError:
            raise
        except Exception as error:  # the model may read values or mix devices: try what shows it more of them
            last_error = error
    raise TraceError(
        f"the model must run on the example inputs, but its forward raised {type(last_error).__name__}: {last_error}\n"
        "check the example inputs with model(*inputs) first"
    ) from last_error


def _grounds(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Ground]:
    """From the one that shows the model no values at all to that which shows it nothing else.

    Only the last one lets PyTorch choose its kernels by device; it is for code that goes past PyTorch (`x.numpy()`).
    """
    originals = named_tensors(model)
    yield Ground(to_meta(originals), to_meta(args), to_meta(kwargs), None)
    real = [leaf for leaf in tree_leaves((args, kwargs, originals)) if isinstance(leaf, Tensor) and not leaf.is_meta]
    if real:
        buffers = {name for name, _ in model.named_buffers()}
        shown = {name: t.clone() if name in buffers else to_meta(t) for name, t in originals.items()}
        yield Ground(shown, args, kwargs, Values(real[0].device))
    if len(real) == sum(isinstance(leaf, Tensor) for leaf in tree_leaves((args, kwargs, originals))):
        parameters = [parameter.detach() for parameter in model.parameters()]
        for on_meta in (True, False):
            values = Values(real[0].device, parameters, on_meta)
            yield Ground(without_trace(model, originals), args, kwargs, values)


def _watch_on(model: nn.Module, ground: Ground, table: RuleTable) -> tuple[Atoms, list[Pass], list[str]]:
    atoms = Atoms()
    tensors = ground.tensors if ground.values is None else ground.values.beside(ground.tensors)
    for name, tensor in tensors.items():
        labels = [atoms.new_axis(name, d, n) if n > 1 else None for d, n in enumerate(tensor.shape)]
        Run(atoms).label(tensor, labels)
    passes = [Pass(Run(atoms), False, ground)]
    _follow(model, passes[0], tensors, table)
    unused = _unused(model, tensors, passes)
    if unused:
        passes += _train_passes(model, atoms, ground, tensors, table)
        unused = _unused(model, tensors, passes)
    return atoms, passes, unused


def _follow(model: nn.Module, this: Pass, tensors: dict[str, Tensor], table: RuleTable) -> None:
    """Run one pass under the watching mode; what comes out of the model keeps its size."""
    run, ground, paths = this.run, this.ground, ModulePaths(model)
    args, kwargs = copied((ground.args, ground.kwargs))
    if ground.values is not None:
        args, kwargs = ground.values.beside((args, kwargs))
    mode = WatchMode(run, table, paths, ground.values, this.seed)
    try:
        with (
            torch.no_grad(),
            fixed_randomness(this.seed) as was_drawn,
            training_mode(model, this.training),
            noted_sizes(model, run.notes if table.note_sizes else None),
            paths.watching(),
            mode,
        ):
            output = call(model, tensors, args, kwargs)
            run.draws |= was_drawn()
    finally:
        if ground.values is not None:
            ground.values.give_back()
    run.output_paths = table.output_paths
    if this.training and not has_outputs(output, run.output_paths):  # train mode may return something else
        run.output_paths = ()
    outputs = chosen_outputs(output, run.output_paths)
    run.output_shapes = [tuple(tensor.shape) for _, tensor in outputs]
    for path, tensor in outputs:
        is_choice = len(outputs) > 1 and not this.training and not run.output_paths
        for label in raw_labels(tensor):
            run.atoms.freeze(label, output_reason(path, is_choice), "")
    for tensor, label, reason, path in run.numbers:
        if id(tensor) in run.seen or any(tensor is output for _, output in outputs):
            run.atoms.freeze(label, reason, path)
    run.settle_attributes()


def _train_passes(
    model: nn.Module, atoms: Atoms, ground: Ground, tensors: dict[str, Tensor], table: RuleTable
) -> list[Pass]:
    """Passes in train mode; none if the model cannot do it.

    One pass is enough for a model that draws no numbers. Of one that does, several are run, always with the same
    seeds, and those that take different ways are kept: their ties hold together, whichever layers are skipped later.
    """
    passes: dict[tuple[Any, ...], Pass] = {}
    for seed in range(_NUM_RANDOM_PASSES):
        this = _train_pass(model, atoms, ground, tensors, table, seed)
        if this is not None:
            passes.setdefault(tuple((record.func, record.path, record.shapes) for record in this.run.records), this)
        if this is None or not this.run.draws:
            break
    return list(passes.values())


def _train_pass(
    model: nn.Module, atoms: Atoms, ground: Ground, tensors: dict[str, Tensor], table: RuleTable, seed: int
) -> Pass | None:
    """A pass in train mode, on a batch of two (batch norm refuses one); None if the model cannot do it."""
    for args, kwargs in (tree_map(_twice, (ground.args, ground.kwargs)), (ground.args, ground.kwargs)):
        this = Pass(Run(atoms, is_priced=False), True, Ground(ground.tensors, args, kwargs, ground.values), seed)
        try:
            _follow(model, this, tensors, table)
        except Exception:  # an eval-only model is still traceable: what only train mode uses is listed as unused
            continue
        return this
    return None


def _twice(leaf: Any) -> Any:
    return torch.cat([leaf, leaf]) if isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] == 1 else leaf


def _unused(model: nn.Module, tensors: dict[str, Tensor], passes: list[Pass]) -> list[str]:
    seen: set[int] = set().union(*(each.run.seen for each in passes))
    return [name for name, _ in model.named_parameters() if id(tensors[name]) not in seen]
