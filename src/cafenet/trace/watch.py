"""Watching the model run: in eval mode on meta tensors, on real ones where it reads values, and in train mode too
where that shows parameters which the eval run did not touch (auxiliary heads)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from cafenet.calling import call, copied, named_tensors, to_meta, training_mode, without_trace
from cafenet.errors import TraceError
from cafenet.outputs import chosen_outputs, has_outputs, output_reason
from cafenet.trace.atoms import Atoms
from cafenet.trace.rules import RuleTable
from cafenet.trace.run import ModulePaths, Run, WatchMode, raw_labels
from cafenet.trace.sizes import noted_sizes


@dataclass(frozen=True, eq=False)
class Pass:
    """One finished run, and what it was run on, so that it can be repeated."""

    run: Run
    training: bool
    tensors: dict[str, Tensor]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def watch(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], table: RuleTable
) -> tuple[Atoms, list[Pass], list[str]]:
    """All channels of the model, the passes in which they were followed (eval first), and unused parameters."""
    originals = named_tensors(model)
    try:
        return _watch_on(model, to_meta(originals), to_meta(args), to_meta(kwargs), table)
    except TraceError:
        raise
    except Exception as error:  # the model may read values or mix devices: only a real run can tell
        meta_error = error
    if any(tensor.is_meta for tensor in tree_flatten((originals, args, kwargs))[0] if isinstance(tensor, Tensor)):
        raise _forward_raised(meta_error) from meta_error
    try:
        return _watch_on(model, without_trace(model, originals), args, kwargs, table)
    except TraceError:
        raise
    except Exception as error:
        raise _forward_raised(error) from error


def _forward_raised(error: Exception) -> TraceError:
    return TraceError(
        f"the model must run on the example inputs, but its forward raised {type(error).__name__}: {error}\n"
        "check the example inputs with model(*inputs) first"
    )


def _watch_on(
    model: nn.Module, tensors: dict[str, Tensor], args: tuple[Any, ...], kwargs: dict[str, Any], table: RuleTable
) -> tuple[Atoms, list[Pass], list[str]]:
    atoms = Atoms()
    for name, tensor in tensors.items():
        labels = [atoms.new_axis(name, d, n) if n > 1 else None for d, n in enumerate(tensor.shape)]
        Run(atoms).label(tensor, labels)
    passes = [Pass(Run(atoms), False, tensors, args, kwargs)]
    _follow(model, passes[0], table)
    unused = _unused(model, tensors, passes)
    if unused:
        passes += _train_pass(model, atoms, tensors, args, kwargs, table)
        unused = _unused(model, tensors, passes)
    return atoms, passes, unused


def _follow(model: nn.Module, this: Pass, table: RuleTable) -> None:
    """Run one pass under the watching mode; what comes out of the model keeps its size."""
    paths, notes = ModulePaths(model), this.run.notes if table.note_sizes else None
    with (
        torch.no_grad(),
        training_mode(model, this.training),
        noted_sizes(model, notes),
        paths.watching(),
        WatchMode(this.run, table, paths),
    ):
        output = call(model, this.tensors, *copied((this.args, this.kwargs)))
    run = this.run
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


def _train_pass(
    model: nn.Module,
    atoms: Atoms,
    tensors: dict[str, Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    table: RuleTable,
) -> list[Pass]:
    """A pass in train mode, on a batch of two (batch norm refuses one); none if the model cannot do it."""
    for inputs in (tree_map(_twice, (args, kwargs)), (args, kwargs)):
        this = Pass(Run(atoms), True, tensors, *inputs)
        try:
            _follow(model, this, table)
        except Exception:  # an eval-only model is still traceable: what only train mode uses is listed as unused
            continue
        return [this]
    return []


def _twice(leaf: Any) -> Any:
    return torch.cat([leaf, leaf]) if isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] == 1 else leaf


def _unused(model: nn.Module, tensors: dict[str, Tensor], passes: list[Pass]) -> list[str]:
    seen: set[int] = set().union(*(each.run.seen for each in passes))
    return [name for name, _ in model.named_parameters() if id(tensors[name]) not in seen]
