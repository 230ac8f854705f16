"""Tables that a model's code keeps outside of the model: in globals of its Python module, or in a function around it.

Smallest example: `TABLES = {}` beside a class whose forward says `TABLES[x.shape[1]] = torch.ones(x.shape[1])`. A run
on tensors without values, or at another width, must leave nothing there that the next run finds.
"""

import dis
import functools
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any, TypeAlias

_BEHIND = ("__func__", "fget", "func")
"""Attributes under which static methods, properties and cached properties have their function."""
FUNCTIONS = (FunctionType, functools._lru_cache_wrapper)
"""Kinds of functions whose code is looked at."""
_STORE_GLOBAL = dis.opmap["STORE_GLOBAL"]
CONTAINERS = frozenset({dict, OrderedDict, defaultdict, list, set, deque})
"""Kinds of tables; one of a class of the user's own may do anything when it is read."""

Rebindable: TypeAlias = tuple[dict[str, Any], tuple[str, ...]]
"""The globals of a Python module, and names in them that a function may bind to another object."""


def functions_of(kind: type) -> Iterator[Any]:
    """Finds the functions that a class defines itself, also those behind properties and decorators of Python.

    Args:
        kind: The class.

    Yields:
        The functions, some of them with `functools.lru_cache`.
    """
    for value in vars(kind).values():
        inner = next((held for name in _BEHIND if (held := getattr(value, name, None)) is not None), value)
        if isinstance(inner, FUNCTIONS):
            yield inner


def tables_of(function: Any, foreign: frozenset[str], met: set[int]) -> tuple[list[Any], list[Any], list[Rebindable]]:
    """Finds what a function, and the functions of the user that it calls by name, may keep in globals.

    Args:
        function: The function, maybe with `functools.lru_cache`.
        foreign: Top-level packages whose functions are not followed.
        met: Identities of functions that were followed before; further ones are added.

    Returns:
        Containers, functions with `functools.lru_cache`, and names that are bound with `global`.
    """
    containers: list[Any] = []
    cached: list[Any] = []
    rebound: list[Rebindable] = []
    waiting = [function]
    while waiting:
        this = waiting.pop()
        if id(this) in met:
            continue
        met.add(id(this))
        if isinstance(this, functools._lru_cache_wrapper):
            cached.append(this)
            this = this.__wrapped__
        if not isinstance(this, FunctionType) or (this.__module__ or "").partition(".")[0] in foreign:
            continue
        names, is_binding = _names_in(this.__code__)
        held = this.__globals__
        if is_binding:
            rebound.append((held, names))
        for value in [*[held[name] for name in names if name in held], *_enclosed(this)]:
            if type(value) in CONTAINERS:
                containers.append(value)
            elif isinstance(value, FUNCTIONS):
                waiting.append(value)
    return containers, cached, rebound


def _enclosed(function: FunctionType) -> list[Any]:
    """Objects of the functions around a function, for a class that is made by a function."""
    found = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # a name that has no value yet
            found.append(cell.cell_contents)
    return found


@functools.cache
def _names_in(code: CodeType) -> tuple[tuple[str, ...], bool]:
    """Names that a function's code uses, with those of functions inside it, and whether it binds globals."""
    names, is_binding = dict.fromkeys(code.co_names), _STORE_GLOBAL in code.co_code[::2]
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            further, binds = _names_in(inner)
            names |= dict.fromkeys(further)
            is_binding |= binds
    return tuple(names), is_binding


def clear_if_used(cached: Any, num_misses: int) -> None:
    """Empties the cache of a function that has stored results since.

    Args:
        cached: A function with `functools.lru_cache`.
        num_misses: Number of its misses before.
    """
    if cached.cache_info().misses != num_misses:
        cached.cache_clear()


def bind_again(held: dict[str, Any], before: dict[str, Any], names: tuple[str, ...]) -> None:
    """Binds names of a Python module to their former objects.

    Args:
        held: The globals of the Python module.
        before: The former objects by name.
        names: All names that may have been bound, also those that were not there before.
    """
    for name in names:
        if name in before:
            held[name] = before[name]
        else:
            held.pop(name, None)
