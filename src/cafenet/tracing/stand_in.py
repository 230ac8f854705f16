"""Results that a check run goes on with where an op fails or gives another shape than the trace predicts.

Smallest example: `x.view(-1, 8)` on 5 of 8 channels raises. The trace says that 5 channels come out, so an empty tensor
of that shape stands in, and what lies behind the fault is checked in the same run.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_MORE_THAT_LOOK_AT_VALUES = ("torchvision::nms",)


def size_depends_on_values(func: Any) -> bool:
    """Whether the op gives as many results as its values say (`nonzero`, a mask as an index), whatever the widths."""
    return torch.Tag.dynamic_output_shape in func.tags or func._schema.name in _MORE_THAT_LOOK_AT_VALUES


def stand_in(func: Any, inputs: Sequence[Tensor], found: Sequence[Tensor], shapes: Sequence[Sequence[int]]) -> Any:
    """Zeros of these shapes in the form in which the op returns its results, or None where it has no plain one.

    inputs: the tensors that the op was given; found: the results that it gave, if any.
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
