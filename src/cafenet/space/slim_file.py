"""Files of slim models, which load with `torch.load(weights_only=True)`: widths, kept channels, attributes and
weights.
"""

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
from cafenet.common.options import check_arguments
from cafenet.errors import SlimFileError, first_line
from cafenet.modules.copying import RECORD
from cafenet.modules.tensors import named_tensors, tensor_without_size, unsaved_buffers
from cafenet.modules.unwrapping import unwrap
from cafenet.space.extraction import SlimRecord, rebuild
from cafenet.space.slim_record import as_plain, check_tensors, read_record

FORMAT = "cafenet-slim"
FORMAT_VERSION = 2
"""Version 2 holds the layout by which the model was cut, and a checksum."""
_OF_RECORD = {"widths", "channels", "units_of_channels", "patterns", "axes", "attributes", "full_shapes"}
_KEYS = {"format_version", "model_class", "tensors", "checksum", *_OF_RECORD}


def save(slim: nn.Module, path: str | os.PathLike[str]) -> None:
    """Writes a slim model to a file.

    The model may have been trained since it was extracted. The file is complete or absent: it is written under a
    temporary name and then renamed.

    Args:
        slim: A model that `WidthSpace.extract` or `load` returned.
        path: Path of the file. Its directory must exist.

    Raises:
        SlimFileError: If the model is not a slim model, if its tensors were replaced, or if the file cannot be written.

    Examples:
        >>> import tempfile
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
        >>> slim = cafenet.trace(model, torch.zeros(1, 3, 8, 8)).extract({"0": 4})
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     cafenet.save(slim, f"{directory}/slim.pt")
        ...     loaded = cafenet.load(f"{directory}/slim.pt", model)
        >>> torch.equal(loaded[0].weight, slim[0].weight)
        True
    """
    check_arguments(SlimFileError, path=(path, str | os.PathLike))
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
    if not target.name:
        raise SlimFileError(f"path must name a file, but is {str(path)!r}; write for example slim.pt")
    if not target.parent.is_dir():
        raise SlimFileError(f"{target} cannot be written: the directory {target.parent} does not exist")
    try:
        write_torch(target, content)
    except (OSError, ValueError) as error:  # ValueError: a path that contains a null character
        reason = getattr(error, "strerror", None) or first_line(error)
        raise SlimFileError(f"{str(target)[:80]!r} cannot be written: {reason}; give another path") from error


def load(path: str | os.PathLike[str], model: nn.Module) -> nn.Module:
    """Reads a slim model from a file that `save` wrote.

    Reading runs no code of the file, and all of its content is checked against the model before any of it is used.

    Args:
        path: Path of the file.
        model: The full-size model from which the slim model was extracted, with any weights. It is not changed.

    Returns:
        The slim model, with the weights of the file.

    Raises:
        SlimFileError: If the file is missing, broken or of another format, or if the model does not fit the file.

    Examples:
        >>> import tempfile
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> def build():
        ...     return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     slim = cafenet.trace(build(), torch.zeros(1, 3, 8, 8)).extract({"0": 4})
        ...     cafenet.save(slim, f"{directory}/slim.pt")
        ...     cafenet.load(f"{directory}/slim.pt", build())[0]
        Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))
    """
    check_arguments(SlimFileError, path=(path, str | os.PathLike))
    model = unwrap(model)
    content = _read(Path(path))
    lazy = tensor_without_size(model)
    if lazy is not None:
        raise SlimFileError(
            f"the model must have run once before {path} is read into it, but its {lazy} has no size yet; call it on "
            "an example first"
        )
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
    """Computes a digest of everything that `load` uses."""
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
    """The tensors of a model, without the tables that a forward creates on first use, from which nothing is cut."""
    optional = unsaved_buffers(model) - set(recorded)
    return {name: tensor for name, tensor in named_tensors(model).items() if name not in optional}


def _expect_names(slim: nn.Module, recorded: set[str], found: set[str]) -> None:
    """Refuses a model whose tensors differ from those of the traced model, because the file is read with that model."""
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
    try:
        is_file = path.is_file()
    except OSError as error:  # a name that is too long
        raise SlimFileError(f"{str(path)[:80]!r} cannot be read: {error.strerror}; give another path") from error
    if not is_file:
        raise SlimFileError(f"{path} is not a file")
    try:
        content = read_archive(path)
    except Exception as error:  # torch raises many kinds of errors for a broken archive; the user needs one answer
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
