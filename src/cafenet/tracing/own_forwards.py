"""The check of forwards that are set on a module itself, which a copy of the module may not take along."""

import functools
from collections.abc import Set
from types import FunctionType, MethodType
from typing import Any

from torch import nn

from cafenet.errors import TraceError


def expect_own_forwards(model: nn.Module) -> None:
    """Refuses a forward that would still run the original model in a copy, and therefore in every slim model.

    `deepcopy` binds methods and `functools.partial` to the copy, but it keeps functions and their closures as they are.
    After `old = net.forward; net.forward = lambda x: old(x / 255)`, a copy of `net` therefore runs `net`.

    Args:
        model: The model that will be copied.

    Raises:
        TraceError: If such a forward is set on the model or on one of its modules.
    """
    modules = set(model.modules())
    for path, module in model.named_modules():
        forward = vars(module).get("forward")
        is_compiled = type(module).__name__ == "OptimizedModule"  # a copy is compiled again
        if forward is not None and not is_compiled and not _follows(forward, modules):
            raise TraceError(
                "a forward that is set on a module itself must be a method bound to it, but that of "
                f"{path or 'the model'} ({type(module).__name__}) is {forward!r}, which would run the original in a "
                "slim model; write a subclass, or set types.MethodType(function, module) with a function that calls "
                "type(self).forward(self, ...); use torch.compile after extraction"
            )


def _follows(forward: Any, modules: Set[nn.Module]) -> bool:
    if isinstance(forward, functools.partial):
        return _follows(forward.func, modules)
    if isinstance(forward, MethodType):
        return _is_module(forward.__self__, modules) and not _holds(forward.__func__, modules)
    return isinstance(forward, FunctionType) and not _holds(forward, modules)


def _holds(function: Any, modules: Set[nn.Module]) -> bool:
    """Whether a function has a module of the model, or a method of one, in its closure or its defaults."""
    if not isinstance(function, FunctionType):
        return False
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return any(_is_module(each.__self__ if isinstance(each, MethodType) else each, modules) for each in held)


def _is_module(value: Any, modules: Set[nn.Module]) -> bool:
    return isinstance(value, nn.Module) and value in modules
