"""Checkpoints: written atomically, and read without running any code; the last but one is kept beside the last."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cafenet.common.archive import read_archive
from cafenet.common.files import put_aside, write_torch
from cafenet.common.plain_values import plain_numbers
from cafenet.errors import CafeNetWarning, CheckpointError, first_line
from cafenet.modules.digests import digest_of_tensors
from cafenet.training.data_sketch import is_same

FORMAT = "cafenet-checkpoint"
FORMAT_VERSION = 1

_log = logging.getLogger(__name__)


def previous_path(path: Path) -> Path:
    """Names the last but one checkpoint: that of `supernet.pt` is `supernet.previous.pt`.

    Args:
        path: Path of the checkpoint.

    Returns:
        Path of the one before it.
    """
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Replaces the checkpoint atomically, and keeps the one before it.

    Args:
        path: Path of the checkpoint.
        content: Plain values and tensors.

    Raises:
        CheckpointError: If the file cannot be written. The old checkpoint is then kept.
    """
    whole = {"format": FORMAT, "format_version": FORMAT_VERSION, **plain_numbers(content)}
    try:
        write_torch(path, whole, previous=previous_path(path))
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"the checkpoint {path} cannot be written: {reason}; the last one is kept") from error


def read_checkpoint(path: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """Reads a checkpoint of this run.

    If it is broken, the one before it is used, and the broken one is kept beside it under another name. A training that
    continues from an earlier step ends with the same result.

    Args:
        path: Path of the checkpoint.
        identity: Values that identify the run.

    Returns:
        The content, or None if there is no checkpoint.

    Raises:
        CheckpointError: If the checkpoint belongs to another run, or if no checkpoint can be read.
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


def expect_same_start(path: Path, saved: Mapping[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Compares what a training began with: other data are refused, and other weights are said to have no effect.

    Fresh weights may differ from start to start, and are those of the checkpoint from then on.

    Args:
        path: Path of the checkpoint.
        saved: Content of the checkpoint.
        now: The digest of the weights, and the sketch of the data, that this start came with.

    Returns:
        The start of the training: the digest of its weights, and the sketch of its data.

    Raises:
        CheckpointError: If the training began with other data.
    """
    before: dict[str, Any] = saved.get("begins_with") or now  # those of earlier versions do not say
    if not is_same(before.get("data"), now["data"]):
        raise CheckpointError(
            f"the checkpoint {path} belongs to a training on other data (a sample of the examples differs); use "
            "another directory or remove it"
        )
    if before.get("weights") != now["weights"]:
        warnings.warn(
            f"the training goes on from {path}, which began with other weights than those given now; these have no "
            "effect (use another directory, or remove it, to begin with them)",
            CafeNetWarning,
            stacklevel=2,
        )
    return before


@contextmanager
def restoring(path: Path | None) -> Iterator[None]:
    """Turns every error about the content of a checkpoint inside the block into one that names the file.

    Args:
        path: Path of the checkpoint.

    Raises:
        CheckpointError: If the content does not fit the training.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint {path} must hold the state of this training, but does not: {type(error).__name__}: "
            f"{first_line(error)}; remove it to begin again"
        ) from error


class BrokenCheckpointError(CheckpointError):
    """A checkpoint file cannot be read at all, for example because it was cut off."""


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Reads a checkpoint of any run.

    Args:
        path: Path of the checkpoint.

    Returns:
        The content.

    Raises:
        BrokenCheckpointError: If the file cannot be read.
        CheckpointError: If the file is no checkpoint, or of another format version.
    """
    try:
        content = read_archive(path)
    except Exception as error:  # torch raises many kinds of errors for a broken archive
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


def digest_of_checkpoint(path: Path) -> str:
    """Returns a short digest of the weights in a checkpoint.

    The bytes of the file do not serve: a training that was interrupted ends with the same weights in another file.

    Args:
        path: Path of the checkpoint.

    Returns:
        16 hexadecimal digits.

    Raises:
        CheckpointError: If the file cannot be read, or is no checkpoint.
    """
    with restoring(path):
        return digest_of_tensors(load_checkpoint(path)["model"])


def _content_before(path: Path, error: BrokenCheckpointError) -> dict[str, Any]:
    """Reads the last but one checkpoint, which takes the place of the broken one."""
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
    """Compares nested dicts.

    Args:
        before: The old values.
        now: The new values.
        place: Prefix of all names.

    Returns:
        One line for each value that differs.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        inside = [(key, f"{place}.{key}" if place else key) for key in {**before, **now}]
        return [line for key, where in inside for line in differences(before.get(key), now.get(key), where)]
    return [] if before == now else [f"{place} was {before!r}, is {now!r}"]
