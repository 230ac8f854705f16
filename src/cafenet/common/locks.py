"""A lock between processes that is released if its holder dies, on every system."""

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
    """Holds the lock of an open file inside the block; other processes wait.

    On systems without `flock` the lock is that of an empty SQLite database beside the file (`NAME.lock`). SQLite takes
    a lock of the operating system, which ends with its process.

    Args:
        file: The open file.
        path: Path of the file.

    Raises:
        OSError: If the lock cannot be taken.
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
