"""Runs of a user's forward that do not change the model: with other tensors, in another mode, with ops as written."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.dropout import _DropoutNd

from cafenet.modules.snapshot import unchanged
from cafenet.modules.tensors import Places, tensor_places


def call(model: nn.Module, tensors: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs the model's own forward on other tensors, and removes everything that the forward stores in the model.

    Args:
        model: The model, which is not changed.
        tensors: Tensors to use, named as in `named_tensors`.
        args: Positional arguments of the forward.
        kwargs: Keyword arguments of the forward.

    Returns:
        The output of the forward.
    """
    with unchanged(model, outside=True), as_written():
        return run_with(model, dict(tensors), args, kwargs)


@contextmanager
def as_written() -> Iterator[None]:
    """Runs the ops that a model's code names: nothing is compiled, and attention runs as products, not in fused
    kernels.

    The fast path of `nn.MultiheadAttention` hides the products of a whole layer in one op, and turns padded inputs into
    nested tensors, which have no sizes. The kernel of `scaled_dot_product_attention` depends on device and type.
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with _uncompiled(), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def _uncompiled() -> AbstractContextManager[Any]:
    """Runs compiled parts of a model as they were written.

    An attempt to compile under a dispatch mode fails, and torch.compile never tries that code again.
    """
    if "torch._dynamo" not in sys.modules or not hasattr(torch.compiler, "set_stance"):  # new in PyTorch 2.6
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def run_with(
    model: nn.Module,
    tensors: dict[str, Tensor],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    places: Places | None = None,
    *,
    keep_buffers: bool = True,
) -> Any:
    """Runs the model's own forward on other tensors. The model keeps its own.

    Buffers that the forward assigns anew are put into `tensors`. `torch.func.functional_call` does the same, but has
    two faults in PyTorch 2.13: it leaves foreign tensors in a module that has two names, and its search for tied
    tensors takes longer than the forward of a small network.

    Args:
        model: The model.
        tensors: Tensors to use, named as in `named_tensors`. New buffers replace the old ones here.
        args: Positional arguments of the forward.
        kwargs: Keyword arguments of the forward.
        places: Places of exactly these tensors, as `tensor_places` finds them, to save the search.
        keep_buffers: Whether new buffers are put into `tensors`.

    Returns:
        The output of the forward.
    """
    if places is None:
        places = [place for place in tensor_places(model) if place[0] in tensors]
    before = [held[key] for _, held, key in places]
    try:
        for name, held, key in places:
            held[key] = tensors[name]
        output = model(*args, **(kwargs or {}))
        for name, held, key in places if keep_buffers else ():
            if held[key] is not None:
                tensors[name] = held[key]
    finally:
        for (_, held, key), tensor in zip(places, before, strict=True):
            held[key] = tensor
    return output


@contextmanager
def placed(tensors: Mapping[str, Tensor], places: Places) -> Iterator[None]:
    """Puts other tensors into a model inside the block, and its own ones back after it.

    Args:
        tensors: Tensors to use, by name.
        places: Places of exactly these tensors, as `tensor_places` finds them.
    """
    before = [held[key] for _, held, key in places]
    try:
        for name, held, key in places:
            held[key] = tensors[name]
        yield
    finally:
        for (_, held, key), tensor in zip(places, before, strict=True):
            held[key] = tensor


@contextmanager
def training_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Switches all modules to train or eval mode, and each back to its own mode. Dropout stays off; it has no
    channels.

    Args:
        model: The model.
        training: Whether to switch to train mode.
    """
    before = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in before:
            module.training = training and not isinstance(module, _DropoutNd)
        yield
    finally:
        for module, mode in before:
            module.training = mode
