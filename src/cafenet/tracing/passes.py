"""Passes in which the model is watched.

The first pass runs in eval mode on meta tensors, which carry values if the model reads some. If it leaves parameters
unused (auxiliary heads), passes in train mode follow.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from cafenet.errors import TraceError
from cafenet.modules.calling import call, training_mode
from cafenet.modules.inputs import copied
from cafenet.modules.outputs import chosen_outputs, has_outputs, output_reason
from cafenet.modules.randomness import fixed_randomness
from cafenet.modules.tensors import named_tensors, to_meta, without_trace
from cafenet.tracing.atoms import Atoms
from cafenet.tracing.attribute_sizes import noted_sizes
from cafenet.tracing.recording import Run, raw_labels
from cafenet.tracing.rules.table import RuleTable
from cafenet.tracing.values import Values
from cafenet.tracing.watching import ModulePaths, WatchMode

_NUM_RANDOM_PASSES = 4
"""Number of passes in train mode if the model draws random numbers there, because each may skip other layers
(LayerDrop).
"""


@dataclass(frozen=True, eq=False)
class Ground:
    """The tensors and inputs on which the model is run."""

    tensors: dict[str, Tensor]
    """Parameters and buffers by name."""
    args: tuple[Any, ...]
    """Positional arguments of the forward."""
    kwargs: dict[str, Any]
    """Keyword arguments of the forward."""
    values: Values | None
    """Values of the meta tensors, or None if they have none."""


@dataclass(frozen=True, eq=False)
class Pass:
    """One finished run, with everything that is needed to repeat it."""

    run: Run
    """The recorded run."""
    training: bool
    """Whether the model was in train mode."""
    ground: Ground
    """The tensors and inputs of the run."""
    seed: int = 0
    """Seed of all random numbers, so that the same layers are skipped if the pass is repeated."""


def watch(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], table: RuleTable
) -> tuple[Atoms, list[Pass], list[str]]:
    """Follows all channels of the model through one pass or several.

    Args:
        model: The model, which is not changed.
        args: Positional arguments of the forward.
        kwargs: Keyword arguments of the forward.
        table: The op rules.

    Returns:
        Everything that the rules have recorded, the passes (eval mode first), and the names of unused parameters.

    Raises:
        TraceError: If the model does not run on the inputs.
    """
    for ground in _grounds(model, args, kwargs):
        try:
            return _watch_on(model, ground, table)
        except TraceError:
            raise
        except Exception as error:  # the model may read values or mix devices: try a ground that shows it more values
            last_error = error
    raise TraceError(
        f"the model must run on the example inputs, but its forward raised {type(last_error).__name__}: {last_error}\n"
        "check the example inputs with model(*inputs) first"
    ) from last_error


def _grounds(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Ground]:
    """Yields grounds that show the model more and more values, from none at all to real tensors only.

    The last ground is for code that bypasses PyTorch (`x.numpy()`). Only there PyTorch chooses its kernels by device.
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
    """Runs one pass under the watching mode, and freezes the sizes of the model's outputs."""
    run, ground, paths = this.run, this.ground, ModulePaths(model)
    args, kwargs = copied((ground.args, ground.kwargs))
    if ground.values is not None:
        args, kwargs = ground.values.beside((args, kwargs))
    run.chosen_parts, run.follows_sizes = table.chosen_parts, table.follows_sizes
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
    """Runs the passes in train mode, or none if the model cannot run in train mode.

    One pass is enough for a model that draws no random numbers. Otherwise several passes are run, always with the same
    seeds, and those that take different ways are kept. Their ties hold together, whichever layers are skipped later.
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
    """Runs a pass in train mode on a batch of two, because batch norm refuses one; returns None if the model cannot
    run.
    """
    for args, kwargs in (tree_map(_twice, (ground.args, ground.kwargs)), (ground.args, ground.kwargs)):
        this = Pass(Run(atoms, is_priced=False), True, Ground(ground.tensors, args, kwargs, ground.values), seed)
        try:
            _follow(model, this, tensors, table)
        except Exception:  # an eval-only model is still traceable: layers of train mode only are listed as unused
            continue
        return this
    return None


def _twice(leaf: Any) -> Any:
    return torch.cat([leaf, leaf]) if isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] == 1 else leaf


def _unused(model: nn.Module, tensors: dict[str, Tensor], passes: list[Pass]) -> list[str]:
    seen: set[int] = set().union(*(each.run.seen for each in passes))
    return [name for name, _ in model.named_parameters() if id(tensors[name]) not in seen]
