"""A lock between processes that a dead one does not keep, on every system."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

try:
    import fcntl

    HAS_FLOCK = True
except ImportError:  # Windows
    HAS_FLOCK = False

_MOST_SECONDS = 600.0


@contextmanager
def locked(file: IO[bytes], path: Path) -> Iterator[None]:
    """Hold the lock of an open file; whoever else wants it waits.

    Where there is no `flock`, it is the lock of an empty SQLite database beside the file (`NAME.lock`): SQLite asks the
    system at hand for a lock, which ends with its process.
    """
    if HAS_FLOCK:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file.fileno(), fcntl.LOCK_UN)
        return
    beside = path.with_name(f"{path.name}.lock")
    try:
        with closing(sqlite3.connect(beside, timeout=_MOST_SECONDS, isolation_level=None)) as database:
            database.execute("BEGIN EXCLUSIVE")
            yield
            database.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise OSError(f"the lock {beside} cannot be taken: {error}") from error
