"""Optuna's storages, opened so that a killed process blocks nobody.

A journal file is the default. Its lock is the operating system's, which a dead process does not keep, and a last line
that a crash tore is cut off before the next one is written.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage, JournalStorage, RDBStorage, get_storage
from optuna.storages.journal import BaseJournalBackend

from cafenet.errors import StoreError

CONNECT_SECONDS = 10

_OPENING = b'{"op_code":'
_MOST_CHECKED = 65536
_MOST_ATTEMPTS = 10
_RETRY_SECONDS = 0.3


def open_storage(storage: str | Path, *, is_read_only: bool = False) -> BaseStorage:
    """A storage URL as Optuna takes it (`postgresql://...`, `sqlite:///...`), or the path of a journal file.

    is_read_only: for a journal that nothing will be written to, and that perhaps may not be.
    """
    if "://" in str(storage):
        return _open_url(str(storage))
    path = Path(storage)
    try:
        if not is_read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
        return JournalStorage(JournalFile(path, "rb" if is_read_only else "a+b"))
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(f"the journal {path} must be a readable and writable journal file, but: {error}") from error


def _open_url(url: str) -> BaseStorage:
    options: dict[str, Any] = {}
    address = url
    if url.startswith("postgresql://") and not find_spec("psycopg") and find_spec("psycopg2"):
        address = url.replace("postgresql://", "postgresql+psycopg2://", 1)  # SQLAlchemy's default driver is another
    if url.startswith(("postgresql", "mysql")):
        options = {"connect_args": {"connect_timeout": CONNECT_SECONDS}, "pool_pre_ping": True}
    try:
        return _open_database(address, options)
    except Exception as error:  # whatever the database's driver raises
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise StoreError(
            f"the storage {without_password(url)} must be reachable, but: {reason}; check the address, that the "
            "database runs, and that its driver is installed (PostgreSQL: pip install psycopg2-binary)"
        ) from error


def _open_database(url: str, options: dict[str, Any]) -> BaseStorage:
    """The storage, with Optuna's cache of finished trials; tried again where another worker makes the tables now."""
    for _ in range(_MOST_ATTEMPTS - 1):
        try:
            return get_storage(RDBStorage(url, engine_kwargs=options))
        except Exception as error:
            if not re.search("already exists|duplicate entry|unique constraint", str(error), re.IGNORECASE):
                raise
            time.sleep(_RETRY_SECONDS)
    return get_storage(RDBStorage(url, engine_kwargs=options))


def without_password(storage: str | Path) -> str:
    """A storage as messages may show it."""
    scheme, separator, rest = str(storage).partition("://")
    if not separator:
        return str(storage)
    user, at, host = rest.rpartition("@")
    host = re.sub(r"(?i)([?&][^=&]*password=)[^&]*", r"\1***", host)
    return f"{scheme}://{user.partition(':')[0]}{at}{host}"


class JournalFile(BaseJournalBackend):
    """One operation a line. Reading goes on where it stopped; a line without an end is not there yet."""

    def __init__(self, path: Path, mode: str = "a+b") -> None:
        self._path = path
        self._offsets = [0]
        """Where line n begins, as far as lines were read."""
        with path.open(mode) as file:  # fails at once where it cannot be written, if it is to be
            file.seek(0)
            _check_start(file.readline(_MOST_CHECKED), path)

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The operations from that number on."""
        number = min(log_number_from, len(self._offsets) - 1)
        with self._path.open("rb") as file:
            file.seek(self._offsets[number])
            for line in file:
                if not line.endswith(b"\n"):
                    return
                if number + 1 == len(self._offsets):
                    self._offsets.append(self._offsets[number] + len(line))
                if number >= log_number_from:
                    yield _decoded(line, number, self._path)
                number += 1

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write operations in one piece."""
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        try:
            with self._path.open("r+b") as file, _locked(file.fileno()):
                end = _end_of_last_line(file.fileno())
                file.truncate(end)
                file.seek(end)
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with_reason = f"{self._path} cannot be written: {error}; what was scored before is kept"
            raise StoreError(with_reason) from error


def _check_start(start: bytes, path: Path) -> None:
    """A first line without an end is cut off later, so it must be a journal's: the path may be a mistake."""
    if not start.endswith(b"\n") and start[: len(_OPENING)] != _OPENING[: len(start)]:
        raise StoreError(f"{path} must be a journal, but is not; use another path")


def _decoded(line: bytes, number: int, path: Path) -> dict[str, Any]:
    try:
        log: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise StoreError(f"line {number + 1} of {path} must be a journal's, but is not; use another path") from error
    if not isinstance(log, dict) or not {"op_code", "worker_id"} <= log.keys():
        raise StoreError(f"line {number + 1} of {path} must be a journal's, but is not; use another path")
    return log


def _end_of_last_line(descriptor: int) -> int:
    """The size of the file without a torn last line."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - 65536)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


@contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
