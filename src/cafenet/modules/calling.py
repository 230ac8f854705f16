"""Calls of the user's model that do not change it: unwrapping, modes, meta tensors and example inputs."""

import copy
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_flatten, tree_map

from cafenet.errors import CafeNetError, TraceError, first_line
from cafenet.modules.snapshot import unchanged

Places: TypeAlias = list[tuple[str, dict[str, Any], str]]
"""Name of a tensor, with a module dictionary and the key under which it is held there. A tied tensor has several."""

RECORD = "_cafenet_record"
"""Name of the attribute in which a slim model holds its SlimRecord (see `extract`)."""


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


@contextmanager
def running_on(inputs: str, error: type[CafeNetError]) -> Iterator[None]:
    """Says that a model does not take its inputs, if PyTorch refuses them inside the block.

    Errors that the user's own code raises, and other kinds such as a lack of memory, are passed on unchanged.

    Args:
        inputs: Name of the inputs, for example "the evaluation data".
        error: Class of the error to raise.

    Raises:
        CafeNetError: As an `error`, if a layer of PyTorch raises a `RuntimeError`.
    """
    try:
        yield
    except RuntimeError as problem:
        raised_in = traceback.extract_tb(problem.__traceback__)[-1].filename
        if type(problem) is not RuntimeError or not Path(raised_in).is_relative_to(Path(torch.__file__).parent):
            raise
        raise error(
            f"the model must run on {inputs}, but its forward raised RuntimeError: {first_line(problem)}; check their "
            "shapes and types"
        ) from problem


def call_arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Converts example inputs to positional and keyword arguments.

    Args:
        example_inputs: A tensor, a tuple or list of positional arguments, or a dict of keyword arguments.

    Returns:
        The positional and the keyword arguments.

    Raises:
        TraceError: If the inputs are of another kind, or hold no tensor.
    """
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    if isinstance(example_inputs, Tensor):
        args, kwargs = (example_inputs,), {}
    elif isinstance(example_inputs, Mapping):
        args, kwargs = (), {str(key): value for key, value in example_inputs.items()}
    elif isinstance(example_inputs, (tuple, list)):
        args, kwargs = tuple(example_inputs), {}
    else:
        raise TraceError(
            "example_inputs must be a tensor, a tuple of positional arguments or a dict of keyword arguments, "
            f"but got {type(example_inputs).__name__}"
        )
    if not any(isinstance(leaf, Tensor) for leaf in tree_flatten((args, kwargs))[0]):
        raise TraceError(f"example_inputs must hold at least one tensor, but got {example_inputs!r}")
    return args, kwargs


def unknown_arguments(model: nn.Module, inputs: Any) -> list[str]:
    """Finds the entries of a dict of inputs that the model's forward does not take.

    Args:
        model: The model.
        inputs: Inputs of the model.

    Returns:
        The names of the entries; none for inputs of another kind, or for a forward that takes any.
    """
    takes = inspect.signature(model.forward).parameters
    if not isinstance(inputs, Mapping) or any(each.kind is each.VAR_KEYWORD for each in takes.values()):
        return []
    return [str(key) for key in inputs if key not in takes]


def copy_of(model: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """Makes a deep copy, even of a model that keeps a result of its forward or of a hook, which `deepcopy` refuses.

    Args:
        model: The model.
        memo: Replacements of objects by their ids, as for `deepcopy`.

    Returns:
        The copy.
    """
    memo = {} if memo is None else memo
    for module in model.modules():
        for tensor in tensors_of(vars(module)):
            if not tensor.is_leaf:
                memo.setdefault(id(tensor), tensor.detach().clone())
    copied = copy.deepcopy(model, memo)
    if hasattr(model, RECORD):  # a torch.fx.GraphModule copies only attributes that its graph names
        setattr(copied, RECORD, getattr(model, RECORD))
    return copied


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Collects all parameters and buffers. Tied ones appear once.

    Args:
        model: The model.

    Returns:
        The tensors by name.
    """
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def unsaved_buffers(model: nn.Module) -> set[str]:
    """Collects the names of buffers that a state dict leaves out (`persistent=False`), whether they exist already or
    not.

    Args:
        model: The model.

    Returns:
        The names.
    """
    return {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }


def to_meta(tree: Any) -> Any:
    """Replaces tensors by meta tensors of the same shape, strides and type.

    Args:
        tree: A tensor, or nested lists, tuples and dicts with tensors.

    Returns:
        The same structure.
    """
    return tree_map(lambda leaf: _meta_like(leaf) if isinstance(leaf, Tensor) else leaf, tree)


def _meta_like(tensor: Tensor) -> Tensor:
    if tensor.layout is not torch.strided:
        return torch.empty_like(tensor, device="meta")
    # Thirty times faster than empty_like, which is a Python function for meta tensors.
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def without_trace(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Prepares tensors for a run: parameters are detached without a copy, and buffers are clones that may be written
    to.

    Args:
        model: The model, which tells parameters from buffers.
        tensors: Its tensors by name.

    Returns:
        The prepared tensors by name.
    """
    parameters = {name for name, _ in model.named_parameters()}
    return {name: t.detach() if name in parameters else t.clone() for name, t in tensors.items()}


def copied(tree: Any) -> Any:
    """Copies inputs for a model that may write to them.

    Args:
        tree: A tensor, or nested lists, tuples and dicts with tensors.

    Returns:
        The same structure, with cloned tensors.
    """
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, tree)


def tensors_of(output: Any) -> Iterator[Tensor]:
    """Iterates over all tensors in an output, also inside objects of the user's own classes.

    Args:
        output: Output of a model.

    Returns:
        An iterator over the tensors.
    """
    return (tensor for _, tensor in tensors_by_path(output))


def tensors_by_path(output: Any) -> Iterator[tuple[str, Tensor]]:
    """Iterates over all tensors in an output, with their paths.

    Args:
        output: Output of a model.

    Yields:
        Pairs of a path and a tensor. A path is `logits`, `0`, `hidden_states.1`, or '' for the output itself.
    """
    stack: list[tuple[str, Any]] = [("", output)]
    met: dict[int, Any] = {}  # keeps visited parts alive, because the id of a freed part could be given to another one
    while stack:
        path, value = stack.pop()
        if isinstance(value, Tensor):
            yield path, value
        elif not isinstance(value, (str, bytes, type, nn.Module)) and id(value) not in met:
            met[id(value)] = value
            parts = [(f"{path}.{name}" if path else str(name), part) for name, part in _parts(value)]
            stack += reversed(parts)


def _parts(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(enumerate(value))
    slots = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())}
    return [*((name, getattr(value, name, None)) for name in sorted(slots)), *getattr(value, "__dict__", {}).items()]


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


def tensor_places(model: nn.Module) -> Places:
    """Finds the places of all tensors of `named_tensors` in the model. A tied tensor has several places.

    Args:
        model: The model.

    Returns:
        The places, module by module.
    """
    names = {id(tensor): name for name, tensor in named_tensors(model).items()}
    return [
        (names[id(tensor)], held, key)
        for module in model.modules()
        for held in (module._parameters, module._buffers)
        for key, tensor in held.items()
        if tensor is not None
    ]


def run_with(
    model: nn.Module,
    tensors: dict[str, Tensor],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    places: Places | None = None,
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
        for name, held, key in places:
            if held[key] is not None:
                tensors[name] = held[key]
    finally:
        for (_, held, key), tensor in zip(places, before, strict=True):
            held[key] = tensor
    return output


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
