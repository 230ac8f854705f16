"""What a final training and its evaluation belong to, so that nothing of another one is taken for theirs.

A model's directory says in `start.json` what its training began with, and in `evaluation.json` what was evaluated:
options, channels, seed, data, and the file of the weights. Data and files are named by digests of their content.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cafenet.common.files import write_json
from cafenet.common.run_files import START, RunFile, read_if_there
from cafenet.data import ImageData
from cafenet.errors import RunFileError
from cafenet.training.checkpoint import differences

_log = logging.getLogger(__name__)

_READ_BYTES = 2**20
_MOST_SHOWN = 60


def begin_training(place: Path, identity: Mapping[str, Any]) -> None:
    """Note what a training begins with; if its directory holds one that began with something else, refuse."""
    before = read_if_there(START, place)
    if before is None:
        write_json(place / START.name, plain(identity))
        return
    found = differences(before, plain(identity))
    if found:
        raise RunFileError(
            f"{place} must hold the training of this model, but holds another one's ({_some(found)}); remove that "
            "directory to train anew, or use another run directory"
        )


def kept_evaluation(file: RunFile, place: Path, weights: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """The evaluation that was kept of these weights, without its identity; None if there is none, or another one's.

    One that is damaged or of something else is not taken: it is said, and the model evaluated again.
    """
    try:
        content: dict[str, Any] | None = read_if_there(file, place)
    except RunFileError as error:
        _log.warning("%s; the model is evaluated again", str(error).partition("; ")[0])
        return None
    if content is None or not weights.is_file():
        return None
    found = differences(content.pop("identity", None), _of_evaluation(weights, identity))
    if found:
        path = place / file.name
        _log.warning("%s belongs to another model or data (%s); the model is evaluated again", path, _some(found))
        return None
    return content


def keep_evaluation(
    file: RunFile, place: Path, weights: Path, identity: Mapping[str, Any], content: Mapping[str, Any]
) -> None:
    """Write an evaluation, with what it belongs to."""
    write_json(place / file.name, {"identity": _of_evaluation(weights, identity), **content})


def _of_evaluation(weights: Path, identity: Mapping[str, Any]) -> dict[str, Any]:
    return plain({**identity, "weights": digest_of_file(weights)})


def plain(content: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives it back."""
    values: dict[str, Any] = json.loads(json.dumps(content, default=repr))
    return values


def digest_of_file(path: Path) -> str:
    """A short name for a file's content."""
    digest = hashlib.blake2b(digest_size=8)
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def digest_of_data(data: ImageData) -> str:
    """A short name for images and targets; of images in files, their names and sizes stand for them."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(repr((data.classes, data.mean, data.std, tuple(data.targets.shape), len(data.images))).encode())
    digest.update(_bytes(data.targets))
    if isinstance(data.images, Tensor):
        digest.update(repr(tuple(data.images.shape)).encode())
        digest.update(_bytes(data.images))
    else:
        for path in getattr(data.images, "paths", ()):
            digest.update(f"{Path(path).parent.name}/{Path(path).name} {Path(path).stat().st_size}\n".encode())
    return digest.hexdigest()


def digest_of_model(model: nn.Module) -> str:
    """A short name for a model's weights and buffers."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    content: bytes = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return content


def _some(found: list[str]) -> str:
    """The first differences, in short: lists of channels are long."""
    shown = [line if len(line) <= _MOST_SHOWN else line.partition(" was ")[0] + " differs" for line in found[:3]]
    return "; ".join(shown) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
