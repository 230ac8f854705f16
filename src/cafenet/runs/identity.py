"""The identity of a final training and of its evaluation, so that files of another model are never taken for theirs.

A model's directory records in `start.json` what its training began with, and in `evaluation.json` what was evaluated:
options, channels, seed, data, and the file of the weights. Data and files are identified by digests of their content.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from cafenet.common.read_files import read_if_there
from cafenet.common.run_files import START, RunFile
from cafenet.common.write_files import write_file
from cafenet.data import ImageData
from cafenet.errors import CheckpointError, RunFileError
from cafenet.modules.digests import bytes_of
from cafenet.training.checkpoint import differences

_log = logging.getLogger(__name__)

_READ_BYTES = 2**20
_MOST_SHOWN = 60


def begin_training(place: Path, identity: Mapping[str, Any]) -> None:
    """Record what a training begins with; refuse a directory whose training began with something else.

    Args:
        place: Directory of the model.
        identity: Everything that the training depends on.

    Raises:
        RunFileError: If the directory holds another training.
    """
    before = read_if_there(START, place)
    if before is None:
        write_file(START, place, plain(identity))
        return
    found = differences(before, plain(identity))
    if found:
        raise RunFileError(
            f"{place} must hold the training of this model, but holds another one's ({_some(found)}); remove that "
            "directory to train anew, or use another run directory"
        )


def kept_evaluation(
    file: RunFile,
    place: Path,
    weights: Path,
    identity: Mapping[str, Any],
    digest: Callable[[Path], str] | None = None,
) -> dict[str, Any] | None:
    """Return a stored evaluation of these weights.

    If the evaluation is damaged or belongs to something else, a warning says so and the model is evaluated again.

    Args:
        file: The evaluation file.
        place: Directory of the model.
        weights: File of the weights.
        identity: Everything that the evaluation depends on beside the weights.
        digest: Function that returns the digest of the weights, by default `digest_of_file`.

    Returns:
        The evaluation without its identity, or None if there is none for this model.
    """
    try:
        content: dict[str, Any] | None = read_if_there(file, place)
    except RunFileError as error:
        _log.warning("%s; the model is evaluated again", str(error).partition("; ")[0])
        return None
    if content is None or not weights.is_file():
        return None
    try:
        found = differences(content.pop("identity", None), _of_evaluation(weights, identity, digest))
    except CheckpointError:  # whoever trains goes on from the checkpoint before it
        return None
    if found:
        path = place / file.name
        _log.warning("%s belongs to another model or data (%s); the model is evaluated again", path, _some(found))
        return None
    return content


def keep_evaluation(
    file: RunFile,
    place: Path,
    weights: Path,
    identity: Mapping[str, Any],
    content: Mapping[str, Any],
    digest: Callable[[Path], str] | None = None,
) -> None:
    """Write an evaluation together with its identity.

    Args:
        file: The evaluation file.
        place: Directory of the model.
        weights: File of the weights.
        identity: Everything that the evaluation depends on beside the weights.
        content: The evaluation.
        digest: Function that returns the digest of the weights, by default `digest_of_file`.
    """
    write_file(file, place, {"identity": _of_evaluation(weights, identity, digest), **content})


def _of_evaluation(weights: Path, identity: Mapping[str, Any], digest: Callable[[Path], str] | None) -> dict[str, Any]:
    """Return the identity of an evaluation."""
    return plain({**identity, "weights": (digest or digest_of_file)(weights)})


def plain(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON would give them back: tuples as lists, keys as strings.

    Args:
        content: The values.

    Returns:
        The plain values.
    """
    values: dict[str, Any] = json.loads(json.dumps(content, default=repr))
    return values


def digest_of_file(path: Path) -> str:
    """Return a short digest of a file's content.

    Args:
        path: The file.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=8)
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def digest_of_data(data: ImageData) -> str:
    """Return a short digest of images and targets; for images in files, of their names and sizes.

    Args:
        data: The data set.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=8)
    digest.update(repr((data.classes, data.mean, data.std, tuple(data.targets.shape), len(data.images))).encode())
    digest.update(bytes_of(data.targets))
    if isinstance(data.images, Tensor):
        digest.update(repr(tuple(data.images.shape)).encode())
        digest.update(bytes_of(data.images))
    else:
        for path in getattr(data.images, "paths", ()):
            digest.update(f"{Path(path).parent.name}/{Path(path).name} {Path(path).stat().st_size}\n".encode())
    return digest.hexdigest()


def _some(found: list[str]) -> str:
    """Return the first differences in short, because lists of channels are long."""
    shown = [line if len(line) <= _MOST_SHOWN else line.partition(" was ")[0] + " differs" for line in found[:3]]
    return "; ".join(shown) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
