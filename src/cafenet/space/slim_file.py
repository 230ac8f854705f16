"""Slim models in files that load with `torch.load(weights_only=True)`: widths, kept channels, attributes, weights."""

import hashlib
import os
import platform
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cafenet.common.archive import read_archive
from cafenet.common.files import write_torch
from cafenet.errors import SlimFileError, first_line
from cafenet.modules.calling import RECORD, named_tensors, unsaved_buffers, unwrap
from cafenet.space.extraction import SlimRecord, rebuild
from cafenet.space.slim_record import as_plain, check_tensors, read_record

FORMAT = "cafenet-slim"
FORMAT_VERSION = 2
"""2 holds the layout that the model was cut by, and a checksum."""
_OF_RECORD = {"widths", "channels", "units_of_channels", "patterns", "axes", "attributes", "full_shapes"}
_KEYS = {"format_version", "model_class", "tensors", "checksum", *_OF_RECORD}


def save(slim: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write a slim model that `WidthSpace.extract` or `load` returned, trained or not; the write is atomic."""
    slim = unwrap(slim)
    record: SlimRecord | None = getattr(slim, RECORD, None)
    if record is None:
        raise SlimFileError(
            f"save takes a slim model that extract() or load() returned, but got a {type(slim).__name__} without its "
            "record; for an ordinary model use torch.save(model.state_dict(), path)"
        )
    essential = _essential(slim, record.full_shapes)
    _expect_names(slim, set(record.full_shapes), set(essential))
    _expect_shapes(slim, record.shapes(), essential)
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "model_class": type(slim).__qualname__,
        **as_plain(record),
        "tensors": {name: tensor.detach() for name, tensor in named_tensors(slim).items()},
        "versions": {
            "cafenet": version("cafenet"),
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
    }
    content["checksum"] = _checksum(content)
    target = Path(path)
    if not target.parent.is_dir():
        raise SlimFileError(f"{target} cannot be written: the directory {target.parent} does not exist")
    try:
        write_torch(target, content)
    except OSError as error:
        raise SlimFileError(f"{target} cannot be written: {error.strerror or error}") from error


def load(path: str | os.PathLike[str], model: nn.Module) -> nn.Module:
    """The slim model in a file, built from the full-size model that it came from (which is not changed)."""
    model = unwrap(model)
    content = _read(Path(path))
    expected = _full_shapes(path, content["full_shapes"])
    shapes = {name: tuple(tensor.shape) for name, tensor in _essential(model, expected).items()}
    if shapes != expected:
        raise SlimFileError(
            f"{path} holds a slim {content['model_class']} that was cut from another model than this "
            f"{type(model).__name__}: {_difference(expected, shapes)}; pass the full-size model that was traced"
        )
    try:
        record = read_record(content, model)
        check_tensors(content["tensors"], record, model, unsaved_buffers(model))
    except SlimFileError as error:
        raise SlimFileError(f"{path} cannot be loaded: {error}; save the model again, or take a copy of it") from error
    if content["checksum"] != _checksum(content):
        raise SlimFileError(
            f"{path} is broken: its content must have the checksum that was saved with it, but has not; save the model "
            "again, or take a copy of it"
        )
    return rebuild(model, content["tensors"], record)


def _checksum(content: dict[str, Any]) -> str:
    """A digest of everything that `load` uses."""
    digest = hashlib.blake2b(digest_size=16)
    for key in sorted(_KEYS - {"checksum"}):
        _feed(digest, [key, content[key]])
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        digest.update(f"tensor {value.dtype} {list(value.shape)}".encode())
        if not value.is_meta:
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, (dict, list, tuple)):
        entries = list(value.items()) if isinstance(value, dict) else value
        digest.update(f"{len(entries)} entries".encode())
        for entry in entries:
            _feed(digest, entry)
    else:
        digest.update(f"{type(value).__name__} {value!r};".encode())


def _full_shapes(path: str | os.PathLike[str], found: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(found, dict) or not all(isinstance(shape, (list, tuple)) for shape in found.values()):
        raise SlimFileError(f"{path} cannot be loaded: full_shapes must be a dict of shapes, but is {found!r:.60}")
    return {name: tuple(shape) for name, shape in found.items()}


def _essential(model: nn.Module, recorded: Collection[str]) -> dict[str, Tensor]:
    """The tensors without tables that a forward makes on first use, for any size of input: nothing is cut from them."""
    optional = unsaved_buffers(model) - set(recorded)
    return {name: tensor for name, tensor in named_tensors(model).items() if name not in optional}


def _expect_names(slim: nn.Module, recorded: set[str], found: set[str]) -> None:
    """A file is read with the model that was traced, so it must hold that model's tensors."""
    if recorded == found:
        return
    changes = [f"{name} is gone" for name in sorted(recorded - found)]
    changes += [f"{name} is new" for name in sorted(found - recorded)]
    raise SlimFileError(
        f"save takes a slim model with the parameters and buffers that it was extracted with, but in this "
        f"{type(slim).__name__} {', '.join(changes[:4])}; save before layers are fused, replaced or reparametrised, or "
        "write the model as it is with cafenet.export to .pt2 or .onnx"
    )


def _expect_shapes(slim: nn.Module, expected: dict[str, tuple[int, ...]], found: dict[str, Tensor]) -> None:
    for name, shape in expected.items():
        if tuple(found[name].shape) != shape:
            raise SlimFileError(
                f"save takes a slim model with tensors of the shapes that it was extracted with, but in this "
                f"{type(slim).__name__} {name} has {list(found[name].shape)} instead of {list(shape)}; write the model "
                "as it is with cafenet.export to .pt2 or .onnx"
            )


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise SlimFileError(f"{path} is not a file")
    try:
        content = read_archive(path)
    except Exception as error:  # whatever a broken archive makes torch raise: the user needs one answer
        raise SlimFileError(f"{path} is broken or not a file of torch.save: {first_line(error)}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise SlimFileError(f"{path} is not a slim model of cafenet.save (format must be {FORMAT!r})")
    found = content.get("format_version")
    if isinstance(found, int) and found != FORMAT_VERSION:
        remedy = "upgrade" if found > FORMAT_VERSION else "save the model again with this version"
        raise SlimFileError(f"{path} has format version {found}, this cafenet reads {FORMAT_VERSION}; {remedy}")
    missing = sorted(_KEYS - set(content))
    if missing:
        raise SlimFileError(f"{path} is not complete: it lacks {', '.join(missing)}")
    return content


def _difference(expected: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]]) -> str:
    for name, shape in expected.items():
        if name not in found:
            return f"it has no {name}"
        if found[name] != shape:
            return f"{name} must have shape {list(shape)}, but has {list(found[name])}"
    return f"the file has no {next(iter(set(found) - set(expected)))}"
