"""Work in a database that survives outages: a restart of the server, a network that is cut for a while.

Every piece of work is one transaction, which is repeated as a whole until the database answers. Whoever gives work must
see to it that work that was done, but whose answer was lost, is recognised and not done twice.
"""

import logging
import random
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

import optuna
import sqlalchemy
from sqlalchemy import exc

from cafenet.errors import StoreError, first_line

OUTAGE_SECONDS = 600.0
"""Seconds after which a database that does not answer ends a worker."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_TRANSIENT = ("08", "40", "53300", "55P03", "57", "25006", "25P03")
"""Beginnings of PostgreSQL's codes of errors that pass: connections, conflicts, too many of them, locks, restarts."""
_FULL = re.compile("no space left|disk.* full|could not extend file|quota", re.IGNORECASE)
_REFUSED = re.compile("authentication failed|permission denied|no such table|read-?only database", re.IGNORECASE)
_MISSING = re.compile('(database|role) ".*" does not exist', re.IGNORECASE)

_log = logging.getLogger(__name__)
Result = TypeVar("Result")


class Patient:
    """Does work in a database, again and again while the database is out of reach."""

    def __init__(self, engine: sqlalchemy.Engine, name: str, seconds: float = OUTAGE_SECONDS) -> None:
        """Remember the database.

        Args:
            engine: The database.
            name: Its address without the password, for messages.
            seconds: Length of an outage after which it is an error.
        """
        self.engine, self._name, self._seconds = engine, name, seconds
        self._random = random.Random()
        self.on_wait: Callable[[], None] = lambda: None
        """Called before every pause of an outage; an exception that it raises ends the work."""

    def run(self, work: Callable[[sqlalchemy.Connection], Result]) -> Result:
        """Do work in one transaction.

        Args:
            work: Function of the connection. It may be called several times.

        Returns:
            Its result.

        Raises:
            StoreError: If the database is full, refuses the work, or stays out of reach.
        """

        def transaction() -> Result:
            with self.engine.begin() as connection:
                return work(connection)

        return self.repeat(transaction)

    def repeat(self, work: Callable[[], Result]) -> Result:
        """Do work that opens connections itself.

        Args:
            work: Function that may be called several times.

        Returns:
            Its result.

        Raises:
            StoreError: If the database is full, refuses the work, or stays out of reach.
        """
        began, pause = None, _FIRST_PAUSE
        while True:
            try:
                result = work()
            except (exc.DBAPIError, exc.TimeoutError, optuna.exceptions.StorageInternalError) as error:
                cause = error.__cause__ if isinstance(error, optuna.exceptions.StorageInternalError) else error
                began = self._began(began, cause or error)
                self.on_wait()
                time.sleep(pause * self._random.uniform(0.5, 1.0))  # so that workers do not come back all at once
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                if began is not None and pause == _LONGEST_PAUSE:
                    _log.warning("%s answers again; the search goes on", self._name)
                return result

    def _began(self, began: float | None, error: BaseException) -> float:
        """Return when the outage began, or raise an error that will not pass."""
        reason = first_line(getattr(error, "orig", None) or error)
        if _FULL.search(reason) or _code(error) == "53100":
            raise StoreError(
                f"the database {self._name} must have room, but: {reason}; make room and start again, the scores "
                "before are kept"
            ) from error
        if not _may_pass(error, reason):
            raise StoreError(f"the database {self._name} must take scores, but: {reason}") from error
        now = time.monotonic()
        if began is None:
            _log.info("%s does not answer (%s); trying again", self._name, reason)
            return now
        if now - began > self._seconds:
            raise StoreError(
                f"the database {self._name} must answer, but has not for {now - began:.0f} seconds: {reason}; start "
                "again when it does, the scores before are kept"
            ) from error
        return began


def _code(error: BaseException) -> str:
    """Return PostgreSQL's code of an error, or an empty text."""
    original: Any = getattr(error, "orig", None)
    return str(getattr(original, "sqlstate", None) or getattr(original, "pgcode", None) or "")


def _may_pass(error: BaseException, reason: str) -> bool:
    """Return whether an error may be gone at the next try."""
    if _REFUSED.search(reason) or _MISSING.search(reason):
        return False
    if isinstance(error, exc.TimeoutError) or getattr(error, "connection_invalidated", False):
        return True
    code = _code(error)
    if code:
        return code.startswith(_TRANSIENT)
    return isinstance(error, (exc.OperationalError, exc.InterfaceError))
