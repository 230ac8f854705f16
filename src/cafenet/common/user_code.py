"""One line before the traceback of a user's own code: the part and step that called it, and what is kept.

The exception itself is raised unchanged, so that its type and traceback remain the user's.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from cafenet.errors import CafeNetError, first_line

_log = logging.getLogger("cafenet")
_TOLD = "_cafenet_told"
_END = object()
Item = TypeVar("Item")


@contextmanager
def user_code(part: str, step: str | Callable[[], str]) -> Iterator[None]:
    """Logs which part of the user's code raised an exception inside the block. The exception is passed on unchanged.

    If blocks are nested, the innermost part is named. A `CafeNetError` is not logged, because its message is complete.

    Args:
        part: Name of the part, for example "the loss".
        step: Name of the step, for example "step 3 of 8 of the training", or a function that returns it.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, CafeNetError) and not hasattr(error, _TOLD):
            where = step if isinstance(step, str) else step()
            name = type(error).__name__
            _log.error("%s raised %s in %s: %s; its traceback follows", part, name, where, first_line(error))
            setattr(error, _TOLD, True)
        raise


@dataclass(frozen=True, eq=False)
class UserPart:
    """A function of the user that is called inside `user_code`, under its own name."""

    function: Callable[..., Any]
    """The user's function."""
    part: str
    """Name of the part in the log."""
    step: str | Callable[[], str]
    """Name of the step in the log, or a function that returns it."""

    def __call__(self, *args: Any) -> Any:
        with user_code(self.part, self.step):
            return self.function(*args)

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))


def items_of(data: Iterable[Item], part: str, step: str | Callable[[], str]) -> Iterator[Item]:
    """Iterates over data of the user, and fetches each item inside `user_code`.

    A `CafeNetError` from a loader's worker arrives as the last line of a traceback; it is raised again with that line
    alone.

    Args:
        data: The user's data.
        part: Name of the data in the log.
        step: Name of the step in the log, or a function that returns it.

    Yields:
        The items of the data.
    """
    with user_code(part, step):
        items = iter(data)
    while True:
        try:
            with user_code(part, step):
                item = next(items, _END)
        except CafeNetError as error:
            if not str(error).startswith("Caught "):
                raise
            raise type(error)(str(error).rstrip().splitlines()[-1].partition(": ")[2]) from error
        if item is _END:
            return
        yield item  # type: ignore[misc]
