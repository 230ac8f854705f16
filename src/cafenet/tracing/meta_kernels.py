"""Fast results of the commonest ops on meta tensors, in place of PyTorch's meta kernels, which are Python functions.

PyTorch's kernel of a batch norm takes 1 ms, most of the time of a whole run, only to find that the result looks like
the input. This module holds only ops with such a simple result. All other ops, and all real tensors, take the ordinary
way.
"""

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _overloads(names: str) -> set[Any]:
    return {getattr(aten, name).default for name in names.split() if hasattr(aten, name)}


_SAME = _overloads("relu gelu silu sigmoid tanh hardswish hardsigmoid hardtanh leaky_relu elu mish")
_SAME_IN_PLACE = _overloads("relu_ gelu_ silu_ sigmoid_ tanh_ hardswish_ hardsigmoid_ hardtanh_ leaky_relu_ elu_")
_SUMS = {aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor}
_SUMS_IN_PLACE = {aten.add_.Tensor, aten.mul_.Tensor, aten.sub_.Tensor}
_CONVOLUTION = aten.convolution.default
_BATCH_NORMS = _overloads("native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training")


def run_op(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
    """Executes an op.

    Args:
        func: The op.
        args: Positional arguments of the op.
        kwargs: Keyword arguments of the op.
        tensors: All tensors among the arguments.

    Returns:
        The result of `func(*args, **kwargs)`.
    """
    if tensors and tensors[0].is_meta and tensors[0].is_floating_point():
        if func in _SAME_IN_PLACE:
            return args[0]
        if func in _SAME:
            return _like(args[0])
        if func in _BATCH_NORMS:
            return _like(args[0]), _empty(args[0]), _empty(args[0])
        if func in _SUMS and _are_alike(args):
            return _like(args[0])
        if func in _SUMS_IN_PLACE and _are_alike(args):
            return args[0]
        if func is _CONVOLUTION:
            sizes = _convolved_sizes(*args)
            if sizes is not None:
                return torch.empty(sizes, dtype=args[0].dtype, device="meta")
    return func(*args, **kwargs)


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _empty(tensor: Tensor) -> Tensor:
    return torch.empty(0, dtype=tensor.dtype, device="meta")


def _are_alike(args: tuple[Any, ...]) -> bool:
    """Whether both operands are tensors of the same shape, type and memory order."""
    left, right = args[0], args[1]
    return (
        isinstance(right, Tensor)
        and right.is_meta
        and left.dtype == right.dtype
        and left.shape == right.shape
        and left.stride() == right.stride()
        and left.is_contiguous()
    )


def _convolved_sizes(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> tuple[int, ...] | None:
    """Sizes of a plain convolution's result, or None for other convolutions and for sizes that do not fit."""
    sizes, kernel = inputs.shape, weight.shape
    if transposed or not len(sizes) == len(kernel) > 2 or sizes[1] != kernel[1] * groups or kernel[0] % groups:
        return None
    if inputs.dtype != weight.dtype or not inputs.is_contiguous() or not weight.is_contiguous():
        return None
    if bias is not None and (bias.dtype != inputs.dtype or bias.shape != kernel[:1]):
        return None
    spatial = [
        (size + 2 * _of(padding, dim) - _of(dilation, dim) * (reach - 1) - 1) // _of(stride, dim) + 1
        for dim, (size, reach) in enumerate(zip(sizes[2:], kernel[2:], strict=True))
    ]
    return (sizes[0], kernel[0], *spatial) if min(*sizes, *spatial) > 0 else None


def _of(values: list[int], dim: int) -> int:
    """Value of one spatial dimension; a single value holds for all dimensions."""
    return values[dim] if len(values) > 1 else values[0]
