"""Results of the commonest ops on meta tensors without PyTorch's meta kernels, which are Python functions.

A batch norm takes 1 ms there, most of the time of a whole run, only to find out that its result looks like its input.
Only ops whose result is that plain are here; all others, and all real tensors, go the ordinary way.
"""

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _overloads(names: str) -> set[Any]:
    return {getattr(aten, name).default for name in names.split() if hasattr(aten, name)}


_SAME = _overloads("relu gelu silu sigmoid tanh hardswish hardsigmoid hardtanh leaky_relu elu mish")
_SAME_IN_PLACE = _overloads("relu_ gelu_ silu_ sigmoid_ tanh_ hardswish_ hardsigmoid_ hardtanh_ leaky_relu_ elu_")
_BATCH_NORMS = _overloads("native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training")


def run_op(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
    """What `func(*args, **kwargs)` returns; `tensors` are those among the arguments."""
    if tensors and tensors[0].is_meta and tensors[0].is_floating_point():
        if func in _SAME_IN_PLACE:
            return args[0]
        if func in _SAME:
            return _like(args[0])
        if func in _BATCH_NORMS:
            return _like(args[0]), _empty(args[0]), _empty(args[0])
    return func(*args, **kwargs)


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _empty(tensor: Tensor) -> Tensor:
    return torch.empty(0, dtype=tensor.dtype, device="meta")
