"""Optuna's storages, opened so that a killed process blocks no other.

A journal file is the default. Its lock belongs to the operating system, so a dead process does not keep it, and a last
line that a crash left incomplete is cut off before the next one is written. If a journal is damaged before its end, the
good lines are kept (see `salvage`).
"""

import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from optuna.storages import BaseStorage, JournalStorage, RDBStorage, get_storage
from optuna.storages._cached_storage import _CachedStorage
from optuna.storages.journal import BaseJournalBackend

from cafenet.common.files import keep_as, name_aside, write_bytes
from cafenet.common.locks import locked
from cafenet.errors import StoreError
from cafenet.searching.store.salvage import Salvaged, decoded, encoded, salvaged

CONNECT_SECONDS = 10
"""Time after which an attempt to reach a database is given up."""

LOCK_SECONDS = 60
"""Time for which a worker waits for the lock of a SQLite file."""

_POOL = {"pool_size": 1, "max_overflow": 2}
"""One connection per worker, and others for a moment: a server takes a hundred by default."""
_LIBPQ = ("postgresql://", "postgresql+psycopg2://", "postgresql+psycopg://")
_ALIVE = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Settings of a connection by which a network that was cut is noticed after some 20 seconds, not hours."""
_SERVER_SETTINGS = (
    "SET default_transaction_isolation = 'read committed'",  # a claim reads what was written before it got the lock
    "SET idle_in_transaction_session_timeout = '30s'",
    "SET tcp_keepalives_idle = 10",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
    "SET tcp_user_timeout = '20s'",
)
"""Limits on the server's side, so that a worker that was cut off keeps no lock; claims rest on them."""

_log = logging.getLogger(__name__)

_OPENING = b'{"op_code":'
_MOST_CHECKED = 65536
_MOST_ATTEMPTS = 10
_RETRY_SECONDS = 0.3


def open_storage(storage: str | Path, *, is_read_only: bool = False) -> BaseStorage:
    """Open a storage for trials.

    Args:
        storage: A storage URL as Optuna takes it (`postgresql://...`, `sqlite:///...`), or the path of a journal file.
        is_read_only: If True, a journal file is only read and needs no write permission.

    Returns:
        The storage.

    Raises:
        StoreError: If the file is no journal or cannot be opened, or the database cannot be reached.
    """
    if "://" in str(storage):
        return _open_url(str(storage))
    path = Path(storage)
    try:
        if not is_read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
        return JournalStorage(_ReadJournal(path) if is_read_only else JournalFile(path))
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(f"the journal {path} must be a readable and writable journal file, but: {error}") from error


def _open_url(url: str) -> BaseStorage:
    """Open a database; its password never appears in an error message."""
    options: dict[str, Any] = {}
    address = url
    if url.startswith("postgresql://") and not find_spec("psycopg") and find_spec("psycopg2"):
        address = url.replace("postgresql://", "postgresql+psycopg2://", 1)  # SQLAlchemy may default to psycopg
    if url.startswith(("postgresql", "mysql")):
        options = {"connect_args": {"connect_timeout": CONNECT_SECONDS}, "pool_pre_ping": True, **_POOL}
    if address.startswith(_LIBPQ):
        options["connect_args"] |= _ALIVE
    if url.startswith("sqlite"):
        options = {"connect_args": {"timeout": LOCK_SECONDS}}
    try:
        return _open_database(address, options)
    except Exception as error:  # whatever the database's driver raises
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise StoreError(
            f"the storage {without_password(url)} must be reachable, but: {reason}; check the address, that the "
            "database runs, and that its driver is installed (PostgreSQL: pip install psycopg2-binary)"
        ) from error


def _open_database(url: str, options: dict[str, Any]) -> BaseStorage:
    """Open the storage with Optuna's cache of finished trials; retry while another worker creates the tables."""
    for _ in range(_MOST_ATTEMPTS - 1):
        try:
            return get_storage(_with_settings(RDBStorage(url, engine_kwargs=options)))
        except Exception as error:
            if not re.search("already exists|duplicate entry|unique constraint", str(error), re.IGNORECASE):
                raise
            time.sleep(_RETRY_SECONDS)
    return get_storage(_with_settings(RDBStorage(url, engine_kwargs=options)))


def _with_settings(storage: RDBStorage) -> RDBStorage:
    """Give every connection to PostgreSQL the settings by which it notices a worker that was cut off."""
    if storage.engine.dialect.name != "postgresql":
        return storage
    from sqlalchemy import event

    def set_all(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        try:
            for statement in _SERVER_SETTINGS:
                _try(connection, cursor, statement)
        finally:
            cursor.close()

    event.listen(storage.engine, "connect", set_all)
    storage.engine.dispose()  # the first connection was made before
    return storage


def _try(connection: Any, cursor: Any, statement: str) -> None:
    """Make one setting; a proxy or an older server may not know it, and scores can be kept without."""
    try:
        cursor.execute(statement)
        connection.commit()
    except Exception:
        connection.rollback()


def has_trials(storage: BaseStorage, study_id: int) -> bool:
    """Return whether a study holds any trial, without reading all of those in a database.

    Args:
        storage: The storage.
        study_id: Number of the study.

    Returns:
        True if there is a trial.
    """
    if not isinstance(storage, _CachedStorage):
        return storage.get_n_trials(study_id) > 0
    from optuna.storages._rdb.models import TrialModel
    from sqlalchemy import select

    with storage._backend.engine.connect() as connection:
        query = select(TrialModel.trial_id).where(TrialModel.study_id == study_id).limit(1)
        return connection.execute(query).first() is not None


def without_password(storage: str | Path) -> str:
    """Return a storage URL or path as messages may show it.

    Args:
        storage: The URL or path.

    Returns:
        The text with any password removed.
    """
    scheme, separator, rest = str(storage).partition("://")
    if not separator:
        return str(storage)
    user, at, host = rest.rpartition("@")
    host = re.sub(r"(?i)([?&][^=&]*password=)[^&]*", r"\1***", host)
    return f"{scheme}://{user.partition(':')[0]}{at}{host}"


class JournalFile(BaseJournalBackend):
    """A journal file with one operation per line.

    Reading continues where it stopped before. A last line without a line end is ignored, because it may still be
    written.
    """

    def __init__(self, path: Path) -> None:
        """Open a journal file or create it, and replace a damaged one by its good lines.

        Args:
            path: The file.

        Raises:
            StoreError: If the file is no journal.
        """
        self._path = path
        self._offsets = [0]
        """Byte offset of each line, as far as lines were read."""
        path.open("ab").close()  # fails at once if the file cannot be written
        with _opened(path) as file:
            _check_start(file.readline(_MOST_CHECKED), path)
            file.seek(0)
            found = salvaged(file.readlines(), path)
            if found.num_damaged:
                _mend(path, found)

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Read operations.

        Args:
            log_number_from: Number of the first operation to read.

        Yields:
            The operations from that number on.

        Raises:
            StoreError: If the file was removed or damaged meanwhile.
        """
        number = min(log_number_from, len(self._offsets) - 1)
        if not self._path.exists():
            raise _gone(self._path)
        with self._path.open("rb") as file:
            file.seek(self._offsets[number])
            for line in file:
                if not line.endswith(b"\n"):
                    return
                if number + 1 == len(self._offsets):
                    self._offsets.append(self._offsets[number] + len(line))
                if number >= log_number_from:
                    yield self._decoded(line, number)
                number += 1

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write operations at the end of the file, all together.

        Args:
            logs: The operations.

        Raises:
            StoreError: If the file was removed or cannot be written.
        """
        lines = b"".join(encoded(log) for log in logs)
        try:
            with _opened(self._path) as file:
                end = _end_of_last_line(file)
                file.truncate(end)
                file.seek(end)
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        except FileNotFoundError as error:
            raise _gone(self._path) from error
        except OSError as error:
            with_reason = f"{self._path} cannot be written: {error}; what was scored before is kept"
            raise StoreError(with_reason) from error

    def _decoded(self, line: bytes, number: int) -> dict[str, Any]:
        """Decode a line, or report that it was damaged since the journal was opened."""
        log = decoded(line)
        if log is None:  # the line was intact when the journal was opened
            raise StoreError(
                f"line {number + 1} of {self._path} was damaged meanwhile; start the search again, which keeps the rest"
            )
        return log


class _ReadJournal(BaseJournalBackend):
    """The good lines of a journal that is only read, as they were when it was opened."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            _check_start(file.readline(_MOST_CHECKED), path)
            file.seek(0)
            self._logs = list(salvaged(file.readlines(), path).logs)

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yield the operations from that number on."""
        yield from self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Refuse to write."""
        raise StoreError("a journal that was opened for reading must not be written to")


def _mend(path: Path, found: Salvaged) -> None:
    """Replace a damaged journal by its good lines; the damaged file is kept beside it."""
    aside = name_aside(path)
    keep_as(path, aside)
    write_bytes(path, b"".join(encoded(log) for log in found.logs))
    _log.warning(
        "%s is damaged in %d of its lines: %d trials are lost and are scored again if they are needed; the other lines "
        "are kept, and the damaged file as %s",
        path,
        found.num_damaged,
        found.num_lost,
        aside.name,
    )


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open the file under its lock; if it was replaced while waiting, open the new file."""
    while True:
        with path.open("r+b") as file, locked(file, path):
            if _is_still(file, path):
                yield file
                return


def _is_still(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file is still the file at a path."""
    return os.path.samestat(os.fstat(file.fileno()), path.stat())


def _gone(path: Path) -> StoreError:
    """Return the error for a journal that was removed while it was used."""
    return StoreError(f"{path} must stay while it is used, but was removed or moved away; start the search again")


def _check_start(start: bytes, path: Path) -> None:
    """Check the first line: if it is incomplete it will be cut off, so it must belong to a journal and not to another
    file."""
    if not start.endswith(b"\n") and start[: len(_OPENING)] != _OPENING[: len(start)]:
        raise StoreError(f"{path} must be a journal, but is not; use another path, or remove it")


def _end_of_last_line(file: IO[bytes]) -> int:
    """Return the size of the file without an incomplete last line."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
