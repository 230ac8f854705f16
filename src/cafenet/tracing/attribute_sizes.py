"""Sizes that a model's code takes from attributes of its modules: `torch.split(x, self.width, 1)`.

Ops see plain numbers, so `self.width` looks the same as a 26 that is written into the code. While a run is watched, the
int attributes of the user's own modules are therefore replaced by ints that know their origin, and a mode above the ops
notes which of them a call is given. If a rule finds such an int as a number of channels, the attribute follows these
channels: slicing then sets it, as it sets `out_channels`. The check run has the last word.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.overrides import TorchFunctionMode

_OF_EVERY_MODULE = vars(nn.Module()).keys()
_LONGEST = 64
_TAKE_SIZES = {
    *("view", "reshape", "unflatten", "expand", "broadcast_to"),
    *("split", "split_with_sizes", "unsafe_split", "narrow", "__getitem__", "__setitem__"),
    *("layer_norm", "rms_norm", "group_norm"),
    *("zeros", "ones", "empty", "full", "new_zeros", "new_ones", "new_empty", "new_full"),
}
"""Torch functions that take ints as sizes. Every other use of an int counts as arithmetic."""


@dataclass(frozen=True)
class Source:
    """An attribute of a module, or one entry of an attribute that is a list or tuple of ints."""

    path: str
    """Path of the module."""
    attribute: str
    """Name of the attribute."""
    index: int | None
    """Index of the entry, or None if the attribute is a single int."""
    whole: tuple[int, ...]
    """All entries of the list or tuple at full width."""

    def __str__(self) -> str:
        entry = "" if self.index is None else f"[{self.index}]"
        return f"self.{self.attribute}{entry} of {self.path or 'the model'}"


class AttributeSize(int):
    """An int that knows the attribute from which it was read. Results of arithmetic with it are plain numbers."""

    source: Source
    notes: "SizeNotes"

    def __float__(self) -> float:
        return float(self._as_value())

    def __truediv__(self, other: Any) -> Any:
        return self._as_value() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self._as_value()

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        return pow(self._as_value(), other, modulo)

    def __rpow__(self, other: Any, modulo: Any = None) -> Any:
        return pow(other, self._as_value(), modulo)

    def _as_value(self) -> int:
        """Notes that the size was used in arithmetic: fractions and powers of a size are factors such as 1 /
        sqrt(width).
        """
        if hasattr(self, "notes"):  # a copy has none
            self.notes.computed_with.add(self.source)
        return int.__add__(self, 0)


@dataclass(eq=False)
class SizeNotes:
    """The uses that one run made of the sizes that it read from attributes."""

    asked: tuple[str, tuple[Any, ...]] = ("", ())
    """Name of the running torch function and its ints in order, if it was given a size from an attribute."""
    computed_with: set[Source] = field(default_factory=set)
    """Attributes with which the model's code computes values."""

    def sizes(self, *functions: str) -> tuple[Any, ...]:
        """Returns the ints that the running torch function was given.

        Args:
            *functions: Names of torch functions.

        Returns:
            The ints in order, or an empty tuple if none of these functions is running.
        """
        name, ints = self.asked
        return ints if name in functions else ()

    def source(self, size: Any) -> Source | None:
        """Finds the attribute from which a size was read in this run.

        Args:
            size: A number that an op or a function was given.

        Returns:
            The attribute, or None if the number was read from none.
        """
        return size.source if isinstance(size, AttributeSize) and getattr(size, "notes", None) is self else None


@contextmanager
def noted_sizes(model: nn.Module, notes: SizeNotes | None) -> Iterator[None]:
    """Replaces the int attributes of the user's own modules inside the block by ints that know their origin.

    Args:
        model: The model, whose attributes are restored after the block.
        notes: The notes of the run, or None to change nothing.
    """
    before: list[tuple[dict[str, Any], str, Any]] = []
    if notes is None:
        yield
        return
    try:
        for path, module in model.named_modules():
            if type(module).__module__.startswith("torch.nn."):  # their attributes are known by name
                continue
            held = vars(module)
            for name, value in list(held.items()):
                noted = _noted(value, path, name, notes) if name not in _OF_EVERY_MODULE else None
                if noted is not None:
                    before.append((held, name, value))
                    held[name] = noted
        if before:
            with _NotingMode(notes):
                yield
        else:
            yield
    finally:
        for held, name, value in before:
            held[name] = value


def _noted(value: Any, path: str, name: str, notes: SizeNotes) -> Any:
    """Converts an int, or a list or tuple of ints, to ints that know their source; returns None for any other value."""
    if type(value) is int:
        return _size(value, Source(path, name, None, ()), notes) if value > 1 else None
    if (
        type(value) not in (list, tuple)
        or not 0 < len(value) <= _LONGEST
        or any(type(item) is not int for item in value)
    ):
        return None
    whole = tuple(value)
    return type(value)(_size(item, Source(path, name, index, whole), notes) for index, item in enumerate(whole))


def _size(value: int, source: Source, notes: SizeNotes) -> AttributeSize:
    size = AttributeSize(value)
    size.source, size.notes = source, notes
    return size


class _NotingMode(TorchFunctionMode):
    """A mode that notes the ints of every torch function that is given a size from an attribute."""

    def __init__(self, notes: SizeNotes) -> None:
        super().__init__()
        self._notes = notes

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        ints = list(_ints((*args, *kwargs.values())))
        sources = [source for source in map(self._notes.source, ints) if source is not None]
        if not sources or _is_cached_by_caller():
            return func(*args, **kwargs)
        name = str(getattr(func, "__name__", ""))
        if name not in _TAKE_SIZES:
            self._notes.computed_with.update(sources)
            return func(*args, **kwargs)
        self._notes.asked = (name, tuple(ints))
        try:
            return func(*args, **kwargs)
        finally:
            self._notes.asked = ("", ())


def _is_cached_by_caller() -> bool:
    """Whether the caller is einops, which keeps the sizes of its first call, so that another trace would get those
    of this one.
    """
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return str(caller).startswith("einops")


def _ints(values: Iterable[Any]) -> Iterator[int]:
    for value in values:
        if isinstance(value, int):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _ints(value)
        elif isinstance(value, slice):
            yield from _ints((value.start, value.stop))
        elif isinstance(value, Mapping):
            yield from _ints(value.values())
