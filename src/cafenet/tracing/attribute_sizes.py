"""Sizes that a model's code takes from attributes of its modules: `torch.split(x, self.width, 1)`.

Ops see plain numbers, so nobody could tell `self.width` from a 26 that is written into the code. While a run is
watched, the int attributes of the user's own modules are therefore ints that know where they come from, and a mode
above the ops notes which of them a call is given. A rule that finds one where a size of channels is asked for lets the
attribute follow the channels: slicing then sets it, as it sets `out_channels`. The check run has the last word.
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
"""Torch functions that take ints as sizes; whatever others do with an int is taken for arithmetic."""


@dataclass(frozen=True)
class Source:
    """An attribute of a module, or one entry of an attribute that is a list or tuple of ints."""

    path: str
    attribute: str
    index: int | None
    whole: tuple[int, ...]
    """All entries of the list or tuple, as they are at full width."""

    def __str__(self) -> str:
        entry = "" if self.index is None else f"[{self.index}]"
        return f"self.{self.attribute}{entry} of {self.path or 'the model'}"


class AttributeSize(int):
    """An int that knows the attribute that it was read from; what is computed from it is a plain number."""

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
        """Fractions and powers of a size are factors such as 1 / sqrt(width)."""
        if hasattr(self, "notes"):  # not in a copy
            self.notes.computed_with.add(self.source)
        return int.__add__(self, 0)


@dataclass(eq=False)
class SizeNotes:
    """What one run has done with the sizes that it read from attributes."""

    asked: tuple[str, tuple[Any, ...]] = ("", ())
    """The torch function that is running, where it was given such a size, and its ints in order."""
    computed_with: set[Source] = field(default_factory=set)

    def sizes(self, *functions: str) -> tuple[Any, ...]:
        """The ints that the running torch function was given, if it is one of these."""
        name, ints = self.asked
        return ints if name in functions else ()

    def source(self, size: Any) -> Source | None:
        """The attribute that a size was read from in this run."""
        return size.source if isinstance(size, AttributeSize) and getattr(size, "notes", None) is self else None


@contextmanager
def noted_sizes(model: nn.Module, notes: SizeNotes | None) -> Iterator[None]:
    """Make the int attributes of the user's own modules known by origin inside the block, if there are notes."""
    before: list[tuple[dict[str, Any], str, Any]] = []
    if notes is None:
        yield
        return
    try:
        for path, module in model.named_modules():
            if type(module).__module__.startswith("torch.nn."):  # whose attributes are known by name
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
    """An int, or a list or tuple of ints, as ints that know their source; None for anything else."""
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
    """Notes the ints of every torch function that is given a size from an attribute."""

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
    """einops keeps the sizes of its first call, and another trace would get those of this one."""
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
