"""Checkpoints: written under a temporary name and renamed, read without running any code."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from cafenet.archive import read_archive
from cafenet.errors import CheckpointError, first_line
from cafenet.plain import plain_numbers

FORMAT = "cafenet-checkpoint"
FORMAT_VERSION = 1


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Replace the checkpoint in one move: a crash leaves either the old or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"format": FORMAT, "format_version": FORMAT_VERSION, **plain_numbers(content)}, temporary)
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        reason = "the disk may be full" if "inline_container" in str(error) else error  # what torch calls its file
        raise CheckpointError(f"the checkpoint {path} cannot be written: {reason}; the last one is kept") from error
    finally:
        with suppress(OSError):  # a directory that is not there has nothing to remove
            temporary.unlink(missing_ok=True)


def read_checkpoint(path: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The checkpoint at path, or None if there is none; one of another run is an error that says what differs."""
    if not path.exists():
        return None
    try:
        content = read_archive(path)
    except Exception as error:  # whatever a broken archive makes torch raise
        reason = first_line(error)
        raise CheckpointError(f"the checkpoint {path} is broken: {reason}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of cafenet")
    found = content.get("format_version")
    if found != FORMAT_VERSION:
        raise CheckpointError(
            f"the checkpoint {path} must have format version {FORMAT_VERSION}, but has {found!r:.20}; remove it to "
            "begin again"
        )
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


def differences(before: Any, now: Any, place: str = "") -> list[str]:
    """One line for each value inside that is not the same."""
    if isinstance(before, dict) and isinstance(now, dict):
        inside = [(key, f"{place}.{key}" if place else key) for key in {**before, **now}]
        return [line for key, where in inside for line in differences(before.get(key), now.get(key), where)]
    return [] if before == now else [f"{place} was {before!r}, is {now!r}"]
