"""Snapshot of a model before a forward: everything that the forward adds, keeps or switches is undone.

A forward may install hooks on its first call, keep a table for the next one, count its steps, draw from a generator of
its own or swap its class. Inside tracing and trial passes such a table would have no values or another width, and the
user's model must not be changed by them.
"""

import functools
import operator
import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cafenet.modules.global_tables import CONTAINERS, FUNCTIONS, bind_again, clear_if_used, functions_of, tables_of

_MOST_ENTRIES = 1000
"""Number of entries above which a container counts as data: only entries that were added at its end are removed."""

_DEEPEST = 3
"""Largest depth to which nested objects are followed, because a model may hold the program that trains it."""

_FOREIGN = frozenset({*sys.stdlib_module_names, "torch", "numpy"})
"""Packages whose objects and classes are not visited."""

Undo = Callable[[], object]


@contextmanager
def unchanged(model: nn.Module, *, outside: bool = False) -> Iterator[None]:
    """Restores the class, attributes, hooks, parameters, submodules and containers of every module after the block.

    This includes nested dicts, lists and sets, objects of the user's own classes and these classes themselves, tensors
    among the attributes, generators of random numbers, and tables in the globals of the Python modules in which these
    classes are defined. A table in another place (an attribute of an imported module, a file) stays as the run left it.

    Args:
        model: The model that is run inside the block.
        outside: Whether to restore also the closures and globals of hooks and of other functions that the model holds,
            for example a list outside of the model that a hook fills. A run on real values may count there; a run on
            tensors without values may not.
    """
    undo = _Snapshot(model, outside).undo
    try:
        yield
    finally:
        for each in reversed(undo):
            each()


class _Snapshot:
    """Visits everything that a model holds once, and notes how to restore it."""

    def __init__(self, model: nn.Module, outside: bool) -> None:
        self._outside = outside
        self.undo: list[Undo] = []
        self._met: set[int] = set()
        self._followed: set[int] = set()
        self._empty: list[Any] = []
        modules = list(model.modules())
        self._tree = {id(module) for module in modules}
        self._stack: list[tuple[Any, int]] = [(module, 0) for module in modules]
        self._own = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
        self.undo.append(functools.partial(_clear_all, self._empty))
        while self._stack:
            self._visit(*self._stack.pop())

    def _visit(self, value: Any, depth: int) -> None:
        kind = type(value)
        if kind in _PLAIN or isinstance(value, (int, float, str)) or id(value) in self._met:
            return
        self._met.add(id(value))
        if isinstance(value, (dict, list, set, deque)):
            self._container(value, depth)
        elif isinstance(value, (tuple, frozenset)):
            self._push(value, depth)
        elif isinstance(value, nn.Module):
            self._module(value)
        elif isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, (FunctionType, MethodType, functools.partial)):
            if self._outside:
                self._push(_held_by(value), depth)
                self._globals(value)
        elif isinstance(value, (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)):
            self.undo.append(_generator(value))
        elif isinstance(value, type):
            self._class(value)
        elif not isinstance(value, ModuleType) and depth < _DEEPEST and not _is_foreign(kind):
            attributes = getattr(value, "__dict__", None)
            if isinstance(attributes, dict):
                self._container(attributes, depth + 1)

    def _push(self, values: Any, depth: int) -> None:
        self._stack += [(value, depth) for value in values if type(value) not in _PLAIN]

    def _module(self, module: nn.Module) -> None:
        kind = type(module)
        self._visit(kind, 0)
        attributes = vars(module)
        self._met.add(id(attributes))
        self.undo.append(functools.partial(_restore_module, module, kind, attributes, dict(attributes)))
        for name, value in attributes.items():
            if type(value) in _PLAIN:
                continue
            if type(value) in _BUILT_IN and not value:  # most dictionaries of hooks are empty
                self._empty.append(value)
            elif name in _PARTS and id(module) in self._tree:
                self.undo.append(functools.partial(_refill, value, dict(value)))
            else:
                self._stack.append((value, 0))

    def _class(self, kind: type) -> None:
        """Notes a class of the user, which may keep a table for all its objects, or get another forward."""
        for each in kind.__mro__:
            if not _is_foreign(each) and (each is kind or id(each) not in self._met):
                self._met.add(id(each))
                self.undo.append(functools.partial(_restore_class, each, dict(vars(each))))
                tables = [value for value in vars(each).values() if isinstance(value, (dict, list, set, deque))]
                self._push(tables, _DEEPEST)
                for function in functions_of(each):
                    self._globals(function)

    def _globals(self, function: Any) -> None:
        """Notes what a function keeps in the globals of its Python module."""
        if not isinstance(function, FUNCTIONS):
            return
        containers, cached, rebound = tables_of(function, _FOREIGN, self._followed)
        for held in containers:
            self._table(held)
        for each in cached:
            self.undo.append(functools.partial(clear_if_used, each, each.cache_info().misses))
        for names_held, names in rebound:
            before = {name: names_held[name] for name in names if name in names_held}
            self.undo.append(functools.partial(bind_again, names_held, before, names))

    def _table(self, held: Any) -> None:
        """Notes a container outside of the model, with the containers and tensors in it alone."""
        if id(held) in self._met:
            return
        self._met.add(id(held))
        if not held:
            self._empty.append(held)
        elif len(held) > _MOST_ENTRIES:
            self.undo.append(functools.partial(_shorten, held, len(held)))
        else:
            self.undo.append(functools.partial(_refill, held, _copied_once(held)))
            for value in held.values() if isinstance(held, dict) else held:
                if type(value) in CONTAINERS:
                    self._table(value)
                elif isinstance(value, Tensor):
                    self._visit(value, _DEEPEST)

    def _container(self, held: Any, depth: int) -> None:
        if not held:
            self._empty.append(held)
        elif len(held) > _MOST_ENTRIES:
            self.undo.append(functools.partial(_shorten, held, len(held)))
        else:
            self.undo.append(functools.partial(_refill, held, _copied_once(held)))
            self._push(held.values() if isinstance(held, dict) else held, depth)

    def _tensor(self, tensor: Tensor) -> None:
        """Notes a tensor attribute, which may be written to; parameters and buffers are swapped before a run."""
        if id(tensor) not in self._own and not tensor.is_meta and not tensor.is_inference():
            with torch.no_grad():
                self.undo.append(functools.partial(_rewrite, tensor, tensor._version, tensor.detach().clone()))


_PARTS = {"_parameters", "_buffers", "_modules"}
"""Parts of a module that need no visit: submodules are visited themselves, and tensors are swapped before a run."""

_BUILT_IN = {dict, OrderedDict, list, set}
_PLAIN = {int, float, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size, complex, slice}


def _is_foreign(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _FOREIGN


def _held_by(function: Any) -> list[Any]:
    """Objects in a function's closure and defaults, or the object to which a method or a partial call is bound."""
    if isinstance(function, functools.partial):
        return [function.func, *function.args, *function.keywords.values()]
    if isinstance(function, MethodType):
        return [function.__self__, function.__func__]
    cells = [_content(cell) for cell in function.__closure__ or ()]
    return [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return None


def _restore_module(module: nn.Module, kind: type, attributes: dict[str, Any], content: dict[str, Any]) -> None:
    if type(module) is not kind:
        module.__class__ = kind
    if vars(module) is not attributes:
        module.__dict__ = attributes
    _refill(attributes, content)


def _restore_class(kind: type, content: dict[str, Any]) -> None:
    now = vars(kind)
    for name in [name for name in now if name not in content]:
        delattr(kind, name)
    for name, value in content.items():
        if now.get(name, content) is not value:
            setattr(kind, name, value)


def _copied_once(held: Any) -> Any:
    return next(kind(held) for kind in (dict, list, set, deque) if isinstance(held, kind))


def _refill(held: Any, content: Any) -> None:
    """Restores a container's contents, unless it holds the identical objects in the same places."""
    if _has_same(held, content):
        return  # a container that cannot be written to is not touched
    held.clear()
    if isinstance(held, (list, deque)):
        held.extend(content)
    else:
        held.update(content)


def _has_same(held: Any, content: Any) -> bool:
    if len(held) != len(content):
        return False
    if isinstance(held, set):
        return {id(each) for each in held} == {id(each) for each in content}
    if isinstance(held, dict):
        return all(map(operator.is_, held.values(), content.values())) and all(map(operator.is_, held, content))
    return all(map(operator.is_, held, content))


def _clear_all(containers: list[Any]) -> None:
    for held in containers:
        if held:
            held.clear()


def _shorten(held: Any, size: int) -> None:
    if isinstance(held, dict):
        for key in list(held)[size:]:
            del held[key]
    elif isinstance(held, (list, deque)):
        while len(held) > size:
            held.pop()


def _rewrite(tensor: Tensor, version: int, content: Tensor) -> None:
    if tensor._version != version:
        with torch.no_grad():
            tensor.copy_(content)


def _generator(generator: Any) -> Undo:
    if isinstance(generator, torch.Generator):
        return functools.partial(generator.set_state, generator.get_state())
    if isinstance(generator, np.random.Generator):
        return functools.partial(setattr, generator.bit_generator, "state", generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return functools.partial(generator.set_state, generator.get_state())
    return functools.partial(generator.setstate, generator.getstate())
