"""The user's own module inside wrappers, and the models that cannot be used."""

import torch
from torch import nn

from cafenet.errors import CafeNetError, TraceError
from cafenet.modules.tensors import named_tensors


def unwrap(model: nn.Module) -> nn.Module:
    """Finds the user's own module inside DataParallel, DDP or torch.compile.

    Args:
        model: A module, perhaps wrapped.

    Returns:
        The innermost module.

    Raises:
        TraceError: If the model is not a module, is scripted, or has parameters that are cut in pieces.
    """
    if not isinstance(model, nn.Module):
        raise TraceError(f"model must be an nn.Module, but got {type(model).__name__}")
    while True:
        if isinstance(model, torch.jit.ScriptModule):
            raise TraceError("a ScriptModule cannot be traced, its sizes are compiled in; pass the original nn.Module")
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif type(model).__name__ == "OptimizedModule":  # by name, as importing torch._dynamo takes a second
            model = getattr(model, "_orig_mod")  # noqa: B009 - not known to the type checker
        else:
            break
    scripted = [name for name, module in model.named_modules() if isinstance(module, torch.jit.ScriptModule)]
    if scripted:
        raise TraceError(f"a model with a ScriptModule inside cannot be traced, but {scripted[0]!r} is one")
    refuse_pieces(model, TraceError)
    return model


_SHARDING = ("FullyShardedDataParallel", "FSDPModule")
"""Classes of wrappers that cut parameters in pieces; inside a forward, the parameters do not show it."""


def refuse_pieces(model: nn.Module, error: type[CafeNetError]) -> None:
    """Refuses a model whose parameters are cut in pieces, because channels are slices of whole parameters.

    Args:
        model: The model.
        error: Class of the error to raise.

    Raises:
        CafeNetError: As an `error`, if FSDP or DeepSpeed ZeRO-3 has cut a parameter.
    """
    cut = [name for name, parameter in model.named_parameters() if _is_cut(parameter)]
    wrappers = [type(module).__name__ for module in model.modules() if type(module).__name__ in _SHARDING]
    if cut or wrappers:
        raise error(
            f"parameters must be whole in every process, but {(cut or wrappers)[0]} is cut in pieces by FSDP or "
            "DeepSpeed ZeRO-3; trace it before wrapping it, and use DistributedDataParallel, or ZeRO up to stage 2"
        )


def _is_cut(parameter: nn.Parameter) -> bool:
    """Tells by the marks that FSDP, `fully_shard` and DeepSpeed leave; importing these libraries takes a second."""
    marks = ("_is_flat_param", "_fsdp_flattened", "ds_id")
    return type(parameter).__name__ == "DTensor" or any(hasattr(parameter, mark) for mark in marks)


def expect_values(model: nn.Module, error: type[CafeNetError]) -> None:
    """Refuses a model on the meta device, because a run on real data needs values.

    Args:
        model: The model.
        error: Class of the error to raise.

    Raises:
        CafeNetError: As an `error`, if a parameter or buffer has no values.
    """
    hollow = next((name for name, tensor in named_tensors(model).items() if tensor.is_meta), None)
    if hollow is not None:
        raise error(
            f"the model must hold values, but its {hollow} is on the meta device; build it on the CPU, or load its "
            "weights first"
        )
