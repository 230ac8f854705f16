"""`trace`: from a model and example inputs to its width space."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from cafenet.errors import TraceError
from cafenet.modules.calling import call_arguments, unwrap
from cafenet.modules.outputs import output_paths
from cafenet.space.width_space import WidthSpace
from cafenet.tracing.build import build_space
from cafenet.tracing.freezing import freeze_named, freeze_whole_modules
from cafenet.tracing.own_forwards import expect_own_forwards
from cafenet.tracing.passes import watch
from cafenet.tracing.recording import Rule
from cafenet.tracing.rules.table import RuleTable
from cafenet.tracing.shape_check import find_faults


def trace(
    model: nn.Module,
    example_inputs: Any,
    *,
    freeze: str | Sequence[str] = (),
    min_width: int | float = 1,
    rules: Mapping[Any, Rule] | None = None,
    outputs: str | int | Sequence[str | int] | None = None,
    verify: bool = True,
) -> WidthSpace:
    """Find the widths that may vary in any model, by watching one run of it. The model is not changed.

    example_inputs: a tensor, a tuple of positional arguments or a dict of keyword arguments; FLOPs are counted for
        exactly these, so use a batch of one.
    freeze: name patterns (`"head"`, `"*.se"`): widths of layers with such a name, or inside such a module, stay. The
        exact name of a layer freezes that layer's output width even if the group is named after another layer, as it
        is for a depthwise convolution or a norm. A pattern that would freeze nothing is an error.
    min_width: the smallest width of each group: an int counts channels, a float below 1 is a share of the group.
    rules: op rules to add or replace, by aten op; see CONTRIBUTING.md.
    outputs: the parts of what the model returns that matter, by name, index or path (`"logits"`, `0`,
        `"features.1"`); without it all of them do. What matters keeps its size; the rest, such as hidden states that
        are returned beside logits, may vary, and `cafenet.verify` does not compare it.
    verify: run the model once more with every group cut differently and compare the shape of every intermediate
        result with what the trace predicts; groups that the model's code does not let vary are frozen.
    """
    space = find_space(
        model, example_inputs, freeze=freeze, min_width=min_width, rules=rules, outputs=outputs, verify=verify
    )
    if not space.groups:
        raise TraceError(
            "a width space must have at least one searchable group, but every layer is frozen:\n"
            + "\n".join(f"  {entry.name}: {entry.reason}" for entry in space.frozen[:20])
            + ("\n  (no layer creates channels)" if not space.frozen else "")
        )
    return space


@torch.inference_mode(False)  # inside that mode ops arrive whole (conv2d, batch_norm), and no rule knows them
def find_space(
    model: nn.Module,
    example_inputs: Any,
    *,
    freeze: str | Sequence[str] = (),
    min_width: int | float = 1,
    rules: Mapping[Any, Rule] | None = None,
    outputs: str | int | Sequence[str | int] | None = None,
    verify: bool = True,
) -> WidthSpace:
    """The same, where perhaps nothing may vary."""
    min_width = _checked_min_width(min_width)
    model = unwrap(model)
    expect_own_forwards(model)
    args, kwargs = call_arguments(example_inputs)
    paths = output_paths(outputs)
    try:
        atoms, passes, unused = watch(model, args, kwargs, RuleTable(rules, output_paths=paths))
    except TraceError as error:
        if not isinstance(error.__cause__, (TypeError, ValueError, AssertionError)):
            raise
        # Perhaps code that asks whether the type of a size is int, and not one that knows its attribute.
        atoms, passes, unused = watch(model, args, kwargs, RuleTable(rules, note_sizes=False, output_paths=paths))
    freeze_whole_modules(model, atoms)
    freeze_named(model, atoms, freeze)
    if verify:
        find_faults(model, atoms, passes)
    space = build_space(model, atoms, [each.run for each in passes], unused, min_width)
    return replace(space, outputs=paths)


def _checked_min_width(min_width: Any) -> int | float:
    if isinstance(min_width, (int, np.integer)) and not isinstance(min_width, bool) and min_width >= 1:
        return int(min_width)
    if isinstance(min_width, (float, np.floating)) and 0 < min_width <= 1:
        return float(min_width)
    raise TraceError(f"min_width must be an int >= 1 (channels) or a float in (0, 1] (share), but got {min_width!r}")
