"""Replacement results with which a check run continues if an op fails or gives another shape than the trace
predicts.

Smallest example: `x.view(-1, 8)` on 5 of 8 channels raises. The trace says that 5 channels come out, so a tensor of
zeros of that shape takes the place of the result, and the same run also checks the ops after the fault.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_MORE_THAT_LOOK_AT_VALUES = ("torchvision::nms",)


def size_depends_on_values(func: Any) -> bool:
    """Whether the number of results depends on values (`nonzero`, a mask as an index) and not on widths.

    Args:
        func: The op.

    Returns:
        True for ops with a dynamic output shape.
    """
    return torch.Tag.dynamic_output_shape in func.tags or func._schema.name in _MORE_THAT_LOOK_AT_VALUES


def stand_in(func: Any, inputs: Sequence[Tensor], found: Sequence[Tensor], shapes: Sequence[Sequence[int]]) -> Any:
    """Creates zeros in the form in which the op returns its results.

    Args:
        func: The op.
        inputs: The tensors that the op was given.
        found: The results that the op gave, if any.
        shapes: The shapes that the trace predicts for the results.

    Returns:
        A tensor, or a list or tuple of tensors, or None if the op returns something else.
    """
    returns = [str(each.type) for each in func._schema.returns]
    is_list, is_plain = returns == ["List[Tensor]"], set(returns) == {"Tensor"} and len(returns) == len(shapes)
    if func._schema.is_mutable or not inputs or not (is_list or is_plain):
        return None
    likeness = found if len(found) == len(shapes) else [inputs[0]] * len(shapes)
    tensors = [each.new_zeros(tuple(shape)) for each, shape in zip(likeness, shapes, strict=True)]
    if is_list:
        return tensors
    return tensors[0] if len(tensors) == 1 else tuple(tensors)
