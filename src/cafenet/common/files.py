"""Files that are written in one move: a crash, or a power cut, leaves the old one or the new one.

Content goes to a temporary name beside the file, is brought to the disk (fsync) and renamed; then the directory is
brought to the disk, too, since the rename is an entry of it.
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
    """Write a JSON file in one move."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file in one move."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file in one move."""
    with replaced(path) as temporary:
        temporary.write_bytes(content)


def write_torch(path: Path, content: Any, *, previous: Path | None = None) -> None:
    """Write a file of `torch.save` in one move; whatever goes wrong with the disk is an OSError that says so.

    previous: the name under which the file that was there before is kept.
    PyTorch writes into a file of Python's, because its own tells no reason: a full disk is "iostream error" there.
    """
    with replaced(path, previous=previous) as temporary, temporary.open("wb") as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:  # what PyTorch makes of the file's own error, which comes before it
            reason = _os_error(error)
            if reason is None:
                raise
            raise reason from error


@contextmanager
def replaced(path: Path, ending: str = ".tmp", previous: Path | None = None) -> Iterator[Path]:
    """A temporary name beside a file, which takes the file's place at the end; an error leaves the file as it was.

    ending: of the temporary name, for writers that look at it. previous: the name under which the file that was there
    before is kept; if none was there, nothing stays under that name either.
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
        if error.errno is not None and error.filename in (None, str(temporary)):  # a name that says nothing to anybody
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        with suppress(OSError):  # a directory that is not there has nothing to remove
            temporary.unlink(missing_ok=True)


def keep_as(path: Path, other: Path) -> None:
    """Let a second name stand for a file's content, in place of what had it; the file stays where it is."""
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
    """A copy of a directory that is there as a whole or not at all."""
    temporary = target.with_name(f"{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary)
    for file in temporary.rglob("*"):
        _bring_to_disk(file)
    temporary.rename(target)
    _bring_to_disk(target.parent)


def put_aside(path: Path) -> Path:
    """Rename a damaged file, so that a new one can take its place; returns its new name."""
    aside = name_aside(path)
    path.rename(aside)
    return aside


def name_aside(path: Path) -> Path:
    """A free name for a damaged file: `NAME.damaged`, or `NAME.damaged-2` and so on."""
    number, aside = 1, path.with_name(f"{path.name}.damaged")
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{number}")
    return aside


def _bring_to_disk(path: Path) -> None:
    """Wait until a file or directory is on the disk; systems that cannot do so for a directory do it by themselves."""
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
    """The error of the operating system that another one came after."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__context__
    return cause
