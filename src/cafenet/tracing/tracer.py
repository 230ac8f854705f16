"""`trace`: the way from a model and example inputs to its width space."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from cafenet.errors import TraceError
from cafenet.modules.inputs import call_arguments
from cafenet.modules.outputs import output_paths
from cafenet.modules.tensors import tensor_without_size, tensors_of
from cafenet.modules.unwrapping import unwrap
from cafenet.space.width_space import WidthSpace
from cafenet.tracing.atoms import Atoms
from cafenet.tracing.build import build_space
from cafenet.tracing.cuts import PartChoice
from cafenet.tracing.freezing import freeze_named, settle_modules
from cafenet.tracing.head_sizes import laid_over, parts_of_sizes
from cafenet.tracing.own_forwards import expect_own_forwards
from cafenet.tracing.passes import Pass, watch
from cafenet.tracing.recording import Rule
from cafenet.tracing.rules.table import RuleTable
from cafenet.tracing.shape_check import check_sizes, find_faults
from cafenet.tracing.size_ties import SizeTie


def trace(
    model: nn.Module,
    example_inputs: Any,
    *,
    freeze: str | Sequence[str] = (),
    min_width: int | float = 1,
    rules: Mapping[Any, Rule] | None = None,
    outputs: str | int | Sequence[str | int] | None = None,
    head_sizes: bool = False,
    verify: bool = True,
) -> WidthSpace:
    """Finds the widths of a model that may vary, by watching one run of it. The model is not changed.

    Everything that a forward stores in the model, its objects and classes is taken back. So are tables in globals that
    the code of these classes names. A table in another place stays, for example in an attribute of an imported module;
    keep it in the model.

    Args:
        model: Any PyTorch model that runs on the example inputs.
        example_inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments. FLOPs are counted for
            exactly these inputs, so use a batch of one.
        freeze: Names, with wildcards, such as `"head"` or `"*.se"`. Layers with such a name, or inside a module with
            such a name, keep their widths. The exact name of a layer freezes that layer's output width even if the
            group is named after another layer, which is the case for a depthwise convolution or a norm. A name that
            would freeze nothing is an error.
        min_width: Smallest width of each group, as a number of channels (int) or as a share of the group (float up to
            1).
        rules: Op rules to add or replace, by aten op. The page "Add an op rule" of the documentation explains them.
        outputs: Parts of the model's output that matter, by name, index or path (`"logits"`, `0`, `"features.1"`). None
            means all parts. These parts keep their sizes. The other parts, such as hidden states that are returned
            beside logits, may vary, and `cafenet.verify` does not compare them.
        head_sizes: Whether the size of attention heads may vary, too, beside their number. Such groups are named after
            the layer that makes the queries, with `@head_size` at the end. The scale of attention stays that of the
            full model: where the code computes it from the size of a head, queries are multiplied to make up for that.
        verify: Whether to run the model again with every group cut differently, and to compare the shape of every
            intermediate result with the prediction of the trace. Groups that the model's code does not let vary are
            frozen.

    Returns:
        The width space, with at least one searchable group.

    Raises:
        TraceError: If the model does not run on the inputs, if it is quantised, if every layer is frozen, or if an
            argument is not valid.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 10, 3))
        >>> space = cafenet.trace(model, torch.zeros(1, 3, 8, 8))
        >>> [(group.name, group.channels) for group in space.groups]
        [('0', 16)]
        >>> [(frozen.name, frozen.reason) for frozen in space.frozen]
        [('3', 'is an output of the model')]
        >>> cafenet.trace(model, torch.zeros(1, 3, 8, 8), min_width=0.25).min_widths
        {'0': 4}
    """
    space = find_space(
        model,
        example_inputs,
        freeze=freeze,
        min_width=min_width,
        rules=rules,
        outputs=outputs,
        head_sizes=head_sizes,
        verify=verify,
    )
    if not space.groups:
        raise TraceError(
            "a width space must have at least one searchable group, but every layer is frozen:\n"
            + "\n".join(f"  {entry.name}: {entry.reason}" for entry in space.frozen[:20])
            + ("\n  (no layer creates channels)" if not space.frozen else "")
        )
    return space


@torch.inference_mode(False)  # in inference mode ops arrive undecomposed (conv2d, batch_norm), for which no rule exists
def find_space(
    model: nn.Module,
    example_inputs: Any,
    *,
    freeze: str | Sequence[str] = (),
    min_width: int | float = 1,
    rules: Mapping[Any, Rule] | None = None,
    outputs: str | int | Sequence[str | int] | None = None,
    head_sizes: bool = False,
    verify: bool = True,
) -> WidthSpace:
    """Finds the width space of a model as `trace` does, but allows a space with no searchable group.

    Args:
        model: Any PyTorch model that runs on the example inputs.
        example_inputs: Inputs as for `trace`.
        freeze: Names of layers that keep their widths, with wildcards.
        min_width: Smallest width of each group, as a number of channels (int) or as a share of the group (float up to
            1).
        rules: Op rules to add or replace, by aten op.
        outputs: Parts of the model's output that matter. None means all parts.
        head_sizes: Whether the size of attention heads may vary, too.
        verify: Whether to check the space with a second run at other widths.

    Returns:
        The width space, perhaps without groups.

    Raises:
        TraceError: If the model does not run on the inputs, or if an argument is not valid.
    """
    min_width = _checked_min_width(min_width)
    model = unwrap(model)
    expect_own_forwards(model)
    _expect_sizes(model)
    _expect_floats(model)
    args, kwargs = call_arguments(example_inputs)
    if not any(tensor.numel() for tensor in tensors_of((args, kwargs))):
        raise TraceError("example_inputs must hold at least one value, but all tensors are empty; use a batch of one")
    paths = output_paths(outputs)
    atoms, passes, unused, table = _watch_with_best_cuts(model, args, kwargs, rules, paths)
    settle_modules(model, atoms)
    freeze_named(model, atoms, freeze)
    ties = find_faults(model, atoms, passes) if verify else []
    if head_sizes and verify and any(each.run.has_attention for each in passes):
        atoms, passes = _with_head_sizes(model, args, kwargs, table, atoms, passes, ties, freeze)
    space = build_space(model, atoms, [each.run for each in passes], unused, min_width)
    return replace(space, outputs=paths)


def _watch_with_best_cuts(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    rules: Mapping[Any, Rule] | None,
    paths: tuple[str, ...],
) -> tuple[Atoms, list[Pass], list[str], RuleTable]:
    """Watches the model, and again with other parts of the cuts in its attention, until these may vary."""
    choice, note_sizes = PartChoice(), True
    while True:
        table = RuleTable(rules, note_sizes=note_sizes, output_paths=paths, chosen_parts=choice.parts)
        try:
            atoms, passes, unused = watch(model, args, kwargs, table)
        except TraceError as error:
            if not note_sizes or not isinstance(error.__cause__, (TypeError, ValueError, AssertionError)):
                raise
            note_sizes = False  # the code may have tested `type(size) is int`, which is false for an AttributeSize
            continue
        runs = [each.run for each in passes if each.run.has_attention or choice.parts]
        cuts = [cut for run in runs for cut in run.cuts]
        if not choice.improve(atoms, cuts, [label for run in runs for label in run.unfit]):
            return atoms, passes, unused, table


def _with_head_sizes(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    table: RuleTable,
    atoms: Atoms,
    passes: list[Pass],
    ties: Sequence[SizeTie],
    freeze: str | Sequence[str],
) -> tuple[Atoms, list[Pass]]:
    """Watches the model once more for the sizes of heads, and lays this trace over the one that follows heads."""
    parts = parts_of_sizes(cut for each in passes for cut in each.run.cuts)
    other, again, _ = watch(model, args, kwargs, table.for_sizes(parts))
    settle_modules(model, other)
    both = laid_over((atoms, passes), (other, again), ties)
    if both is None:
        return atoms, passes
    freeze_named(model, both[0], freeze)
    return both if check_sizes(model, *both) else (atoms, passes)


def _expect_sizes(model: nn.Module) -> None:
    """Refuses lazy layers that have not seen an input yet."""
    lazy = tensor_without_size(model)
    if lazy is not None:
        raise TraceError(
            f"the model must run on the example inputs before it is traced, but {lazy} has no size yet; call the "
            "model once"
        )


_QUANTISED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torchao", "bitsandbytes", "gptqmodel", "awq")


def _expect_floats(model: nn.Module) -> None:
    """Refuses layers whose weights are packed integers, from which no channel can be taken."""
    for path, module in model.named_modules():
        packed = next((each for each in (module, *module._parameters.values()) if _is_of(each, _QUANTISED)), None)
        if packed is not None:
            raise TraceError(
                "weights must be floating-point numbers, one for each pair of channels, but those of "
                f"{path or 'the model'} are quantised ({type(packed).__module__}.{type(packed).__qualname__}); trace "
                "and search the model from which this one was quantised, and quantise the slim model"
            )


def _is_of(value: Any, packages: Sequence[str]) -> bool:
    return any(f"{type(value).__module__}.".startswith(f"{package}.") for package in packages)


def _checked_min_width(min_width: Any) -> int | float:
    if isinstance(min_width, (int, np.integer)) and not isinstance(min_width, bool) and min_width >= 1:
        return int(min_width)
    if isinstance(min_width, (float, np.floating)) and 0 < min_width <= 1:
        return float(min_width)
    raise TraceError(f"min_width must be an int >= 1 (channels) or a float in (0, 1] (share), but got {min_width!r}")
