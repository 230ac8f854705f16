"""Atomic file writes: after a crash or a power cut, either the old file or the new one is there.

The content is written under a temporary name beside the file, synced to the disk (fsync) and renamed. The directory is
then synced as well, because the rename is an entry of it.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch


def write_json(path: Path, content: Any) -> None:
    """Writes a JSON file atomically.

    Args:
        path: Path of the file. Missing directories are created.
        content: Plain values.
    """
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically.

    Args:
        path: Path of the file. Missing directories are created.
        text: Content of the file.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file atomically.

    Args:
        path: Path of the file. Missing directories are created.
        content: Content of the file.
    """
    with replaced(path) as temporary:
        temporary.write_bytes(content)


def write_torch(path: Path, content: Any, *, previous: Path | None = None) -> None:
    """Writes a file of `torch.save` atomically. Every fault of the disk becomes an OSError with its reason.

    PyTorch writes into a Python file object, because its own writer gives no reason: a full disk is an "iostream error"
    there.

    Args:
        path: Path of the file. Missing directories are created.
        content: Content for `torch.save`.
        previous: Name under which the former file is kept.

    Raises:
        OSError: If the file cannot be written.
    """
    with replaced(path, previous=previous) as temporary, temporary.open("wb") as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:  # PyTorch raises it in place of the file's own error, which is its context
            reason = _os_error(error)
            if reason is None:
                raise
            raise reason from error


@contextmanager
def replaced(path: Path, ending: str = ".tmp", previous: Path | None = None) -> Iterator[Path]:
    """Provides a temporary name beside a file, which takes the file's place at the end. An error leaves the file as
    it was.

    Args:
        path: Path of the file. Missing directories are created.
        ending: Ending of the temporary name, for writers that depend on it.
        previous: Name under which the former file is kept. If there was none, a file of that name is removed.

    Yields:
        The temporary path to write to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{ending}")
    try:
        yield temporary
        _bring_to_disk(temporary)
        if previous is not None and path.is_file():
            keep_as(path, previous)
        elif previous is not None:
            previous.unlink(missing_ok=True)
        temporary.replace(path)
        _bring_to_disk(path.parent)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(temporary)):  # users do not know the temporary name
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        with suppress(OSError):  # a directory that is not there has nothing to remove
            temporary.unlink(missing_ok=True)


def keep_as(path: Path, other: Path) -> None:
    """Gives a file's content a second name, and replaces what had that name. The file stays where it is.

    Args:
        path: Path of the file.
        other: The second name.
    """
    temporary = other.with_name(f".{other.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
        except OSError:  # a file system without links
            shutil.copyfile(path, temporary)
        temporary.replace(other)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def copy_directory(source: Path, target: Path) -> None:
    """Copies a directory so that the copy is complete or absent.

    Args:
        source: Directory to copy.
        target: Path of the copy, which must not exist.
    """
    temporary = target.with_name(f"{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary)
    for file in temporary.rglob("*"):
        _bring_to_disk(file)
    temporary.rename(target)
    _bring_to_disk(target.parent)


def put_aside(path: Path) -> Path:
    """Renames a damaged file, so that a new one can take its place.

    Args:
        path: Path of the damaged file.

    Returns:
        Its new path.
    """
    aside = name_aside(path)
    path.rename(aside)
    return aside


def name_aside(path: Path) -> Path:
    """Finds a free name for a damaged file: `NAME.damaged`, or `NAME.damaged-2` and so on.

    Args:
        path: Path of the damaged file.

    Returns:
        A path that does not exist.
    """
    number, aside = 1, path.with_name(f"{path.name}.damaged")
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{number}")
    return aside


def _bring_to_disk(path: Path) -> None:
    """Syncs a file or directory to the disk; a directory is skipped on systems that cannot sync it."""
    is_directory = path.is_dir()
    try:
        descriptor = os.open(path, os.O_RDONLY if is_directory or os.name != "nt" else os.O_RDWR)
    except PermissionError:
        if is_directory:  # Windows opens no directories
            return
        raise
    try:
        os.fsync(descriptor)
    except OSError:
        if not is_directory:  # some network file systems refuse to sync a directory
            raise
    finally:
        os.close(descriptor)


def _os_error(error: BaseException) -> OSError | None:
    """Finds the error of the operating system in the chain of exceptions before this one."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__context__
    return cause
