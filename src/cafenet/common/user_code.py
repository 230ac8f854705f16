"""One line before the traceback of a user's own code: which part of which step called it, and what is kept.

The exception itself goes on as it was raised, so that its type and its traceback are the user's.
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
    """Say that `part` ("the loss") raised in `step` ("step 3 of 8 of the training") before its exception goes on.

    The innermost part is the one that is named. Errors of ours say all that there is to say themselves.
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
    """A function of the user's that is called inside `user_code`, under its own name."""

    function: Callable[..., Any]
    part: str
    step: str | Callable[[], str]

    def __call__(self, *args: Any) -> Any:
        with user_code(self.part, self.step):
            return self.function(*args)

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))


def items_of(data: Iterable[Item], part: str, step: str | Callable[[], str]) -> Iterator[Item]:
    """The items of data of the user's, each fetched inside `user_code`.

    An error of ours from a loader's worker comes inside a traceback, as its last line; here it is that line alone.
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
