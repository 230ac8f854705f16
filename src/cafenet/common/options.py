"""Checks of options by their annotations: a config that is made holds values of the right types and ranges.

Smallest example:

    @dataclass(frozen=True)
    class Walk:
        steps: Annotated[int, Range(1)] = 10

        def __post_init__(self) -> None:
            check_options(self, CafeNetError)

    Walk(steps="3")   # CafeNetError: Walk: steps must be a whole number of at least 1, but is '3'
"""

import functools
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal

import numpy as np

from cafenet.common.suggestions import did_you_mean
from cafenet.errors import CafeNetError


@dataclass(frozen=True, repr=False)
class Range:
    """The numbers from `low` to `high`."""

    low: float = -math.inf
    """Smallest number."""
    high: float = math.inf
    """Largest number."""
    is_open: Literal["", "low", "high", "both"] = ""
    """The ends that do not belong to the range."""

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.is_open in ("low", "both") else value >= self.low
        below = value < self.high if self.is_open in ("high", "both") else value <= self.high
        return above and below

    def __repr__(self) -> str:
        """Describes the range in words for help texts: `above 0 and at most 1`."""
        has_low, has_high = math.isfinite(self.low), math.isfinite(self.high)
        if self.is_open in ("", "high") and has_low and has_high:
            return f"from {self.low} to {'below ' if self.is_open else ''}{self.high}"
        low = f"above {self.low}" if self.is_open in ("low", "both") else f"of at least {self.low}"
        high = f"below {self.high}" if self.is_open in ("high", "both") else f"at most {self.high}"
        return " and ".join([low] * has_low + [high] * has_high)


@dataclass(frozen=True, repr=False)
class Rising:
    """The rule for a pair whose first number is at most the second."""

    def __repr__(self) -> str:
        return "in rising order"


@dataclass(frozen=True, repr=False)
class NotEmpty:
    """The rule for a list that has at least one entry."""

    def __repr__(self) -> str:
        return "(at least one)"


@dataclass(frozen=True, repr=False)
class MadeBy:
    """A hint for objects that users do not build themselves: the function that returns them."""

    function: str
    """Name of the function, for example `cafenet.trace`."""

    def __repr__(self) -> str:
        return f"made by {self.function}"


Count = Annotated[int, Range(0)]
"""A whole number that may be 0."""
PositiveInt = Annotated[int, Range(1)]
Positive = Annotated[float, Range(0, is_open="low")]
NotNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]
PositiveShare = Annotated[float, Range(0, 1, is_open="low")]
ShareBelowOne = Annotated[float, Range(0, 1, is_open="high")]
Seed = Annotated[int, Range(0, 2**63 - 1)]
"""A number that both PyTorch and NumPy accept as a seed."""
NumProcesses = Annotated[int, Range(0, 4096)]
"""Number of processes beside this one. A larger number is a typing error."""


def check_options(config: Any, error: type[CafeNetError]) -> None:
    """Checks every field of a dataclass against its annotation.

    Args:
        config: An instance of a dataclass.
        error: Class of the error to raise.

    Raises:
        CafeNetError: As an `error`, with all problems in one message.
    """
    hints = _hints(config.__class__)
    values = [(field.name, getattr(config, field.name), hints[field.name]) for field in fields(config)]
    problems = [_problem(*each) for each in values if not _fits(*each[1:])]
    if problems:
        raise error(f"{type(config).__name__}: " + "; ".join(problems))


def check_arguments(error: type[CafeNetError], **arguments: tuple[Any, Any]) -> None:
    """Checks the arguments of a function against annotations.

    Args:
        error: Class of the error to raise.
        **arguments: A pair of the value and its annotation for each argument.

    Raises:
        CafeNetError: As an `error`, with all problems in one message.
    """
    problems = [_problem(name, value, hint) for name, (value, hint) in arguments.items() if not _fits(value, hint)]
    if problems:
        raise error("; ".join(problems))


def option_problems(kind: type, values: Mapping[str, Any], place: str = "") -> list[str]:
    """Lists the problems of the values of a tree of dataclasses, given as nested dicts.

    Args:
        kind: Class of the outermost dataclass.
        values: Values by field name. Missing fields are not checked.
        place: Prefix of all names in the messages.

    Returns:
        One sentence per problem, with full names such as `train.epochs`.
    """
    problems = []
    for name, hint in _hints(kind).items():
        value, where = values.get(name), f"{place}{name}"
        if name not in values:
            continue
        section = next((part for part in _alternatives(hint) if is_dataclass(part)), None)
        element = typing.get_args(hint)[0] if _is(hint, list) else None
        if section is not None and isinstance(value, Mapping):
            problems += option_problems(typing.cast(type, section), value, f"{where}.")
        elif is_dataclass(element) and isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
            for number, each in enumerate(value):
                problems += option_problems(typing.cast(type, element), each, f"{where}[{number}].")
        elif not _fits(value, hint):
            problems.append(_problem(where, value, hint))
    return problems


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _problem(name: str, value: Any, hint: Any) -> str:
    literals = [each for part in _alternatives(hint) if _is(part, Literal) for each in typing.get_args(part)]
    near = did_you_mean(value, literals, most=1) if isinstance(value, str) else ""
    return f"{name} must be {_described(hint)}, but is {_shown(value)}" + (f"; {near}" if near else "")


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())  # one line
    return text if len(text) <= 80 else f"{text[:77]}... (a {type(value).__name__})"


def _is(hint: Any, kind: Any) -> bool:
    return typing.get_origin(hint) is kind


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    parts = _alternatives(hint)
    if len(parts) > 1:
        return any(_fits(value, part) for part in parts)
    if _is(hint, Annotated):
        inner, *laws = typing.get_args(hint)
        return _fits(value, inner) and all(_keeps(value, law) for law in laws)
    if _is(hint, Literal):
        return any(value == each and type(value) is type(each) for each in typing.get_args(hint))
    if hint is None or hint is type(None):
        return value is None
    return _fits_plain(value, hint)


def _fits_plain(value: Any, hint: Any) -> bool:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is int:
        return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, (int, float, np.integer, np.floating)) and _is_finite(value)
    if hint is bool:
        return isinstance(value, (bool, np.bool_))
    if origin is tuple:
        return _fits_tuple(value, args)
    if origin is list:
        return isinstance(value, (list, tuple)) and all(_fits(each, args[0]) for each in value)
    if origin is dict:
        return isinstance(value, Mapping) and all(_fits(key, args[0]) for key in value)
    return isinstance(value, hint) if isinstance(hint, type) and not getattr(hint, "_is_protocol", False) else True


def _fits_tuple(value: Any, kinds: tuple[Any, ...]) -> bool:
    """Whether a list or tuple fits; lists are accepted as tuples, which YAML and JSON do not have."""
    if not isinstance(value, (list, tuple)):
        return False
    if kinds[-1] is Ellipsis:
        return all(_fits(each, kinds[0]) for each in value)
    return len(value) == len(kinds) and all(map(_fits, value, kinds))


def _is_finite(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def _keeps(value: Any, law: Any) -> bool:
    if isinstance(law, Range):
        return value in law
    if isinstance(law, NotEmpty):
        return len(value) > 0
    return value[0] <= value[1] if isinstance(law, Rising) else True


def _described(hint: Any) -> str:
    """Describes in words what an annotation requires."""
    parts = _alternatives(hint)
    if len(parts) > 1 or _is(hint, Literal):
        phrases = [[*map(repr, typing.get_args(part))] if _is(part, Literal) else [_described(part)] for part in parts]
        return _any_of([phrase for each in phrases for phrase in each])
    if _is(hint, Annotated):
        inner, *laws = typing.get_args(hint)
        is_made = any(isinstance(law, MadeBy) for law in laws)
        return " ".join([_a(inner) if is_made else _described(inner), *map(repr, laws)])
    return _described_plain(hint)


def _described_plain(hint: Any) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    words = {int: "a whole number", float: "a number", bool: "True or False", str: "a text", type(None): "None"}
    if hint in words:
        return words[hint]
    if origin is tuple and args[-1] is not Ellipsis:
        return f"[{', '.join(map(_described, args))}]"
    if origin in (tuple, list):
        return f"a list, each {_described(args[0])}"
    if origin is dict:
        return "a dict of names and values"
    if is_dataclass(hint):
        return f"{_a(hint)}, as in {_name(hint)}(...)"
    return _a(hint)


def _name(hint: Any) -> str:
    return str(getattr(hint, "__name__", hint))


def _a(hint: Any) -> str:
    name = _name(hint)
    return f"an {name}" if name[0] in "AEIOU" else f"a {name}"


def _any_of(phrases: Sequence[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} or {phrases[-1]}"
