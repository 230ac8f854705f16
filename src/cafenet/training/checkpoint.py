"""Checkpoints: written in one move, read without running any code; the last but one is kept beside the last."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cafenet.common.archive import read_archive
from cafenet.common.files import put_aside, write_torch
from cafenet.common.plain_values import plain_numbers
from cafenet.errors import CheckpointError, first_line

FORMAT = "cafenet-checkpoint"
FORMAT_VERSION = 1

_log = logging.getLogger(__name__)


def previous_path(path: Path) -> Path:
    """Where the last but one checkpoint lies: that of `supernet.pt` is `supernet.previous.pt`."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Replace the checkpoint in one move, and keep the one before it: a crash leaves either the old or the new one."""
    whole = {"format": FORMAT, "format_version": FORMAT_VERSION, **plain_numbers(content)}
    try:
        write_torch(path, whole, previous=previous_path(path))
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"the checkpoint {path} cannot be written: {reason}; the last one is kept") from error


def read_checkpoint(path: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The checkpoint at path, or None if there is none; one of another run is an error that says what differs.

    If it is broken, the one before it is taken, and the broken one kept beside it under another name: a training that
    goes on from an earlier step ends the same.
    """
    if not path.exists():
        return None
    try:
        content = load_checkpoint(path)
    except BrokenCheckpointError as error:
        content = _content_before(path, error)
    differing = differences(content.get("identity"), identity)
    if differing:
        details = "; ".join(differing[:5]) + (f"; and {len(differing) - 5} more" if len(differing) > 5 else "")
        raise CheckpointError(
            f"the checkpoint {path} belongs to another run ({details}); use another directory or remove it"
        )
    return content


@contextmanager
def restoring(path: Path | None) -> Iterator[None]:
    """Whatever in a checkpoint's content does not fit is one error that names the file."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint {path} must hold the state of this training, but does not: {type(error).__name__}: "
            f"{first_line(error)}; remove it to begin again"
        ) from error


class BrokenCheckpointError(CheckpointError):
    """A file that cannot be read at all, as one that was cut off."""


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, whichever run it belongs to."""
    try:
        content = read_archive(path)
    except Exception as error:  # whatever a broken archive makes torch raise
        raise BrokenCheckpointError(f"the checkpoint {path} is broken: {first_line(error)}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of cafenet; use another directory or remove it")
    found = content.get("format_version")
    if found != FORMAT_VERSION:
        raise CheckpointError(
            f"the checkpoint {path} must have format version {FORMAT_VERSION}, but has {found!r:.20}; use another "
            "directory, or remove it to begin again"
        )
    return content


def _content_before(path: Path, error: BrokenCheckpointError) -> dict[str, Any]:
    """The last but one checkpoint, which takes the place of the broken one."""
    before = previous_path(path)
    try:
        content = load_checkpoint(before)
    except CheckpointError:
        raise CheckpointError(
            f"{error}, and there is no older one that can be read; put a copy in its place, or remove it to train from "
            "the start"
        ) from error
    aside = put_aside(path)
    before.replace(path)
    _log.warning("%s; the one before it is taken, and the broken one kept as %s", error, aside.name)
    return content


def differences(before: Any, now: Any, place: str = "") -> list[str]:
    """One line for each value inside that is not the same."""
    if isinstance(before, dict) and isinstance(now, dict):
        inside = [(key, f"{place}.{key}" if place else key) for key in {**before, **now}]
        return [line for key, where in inside for line in differences(before.get(key), now.get(key), where)]
    return [] if before == now else [f"{place} was {before!r}, is {now!r}"]
