"""Weights of a trained model from a file of the user's, checked whole before anything of the model is replaced."""

import argparse
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cafenet.errors import ModelNameError, first_line

_PARALLEL = "module."
"""Beginning of all names in a state dict that was saved from `nn.DataParallel`."""
_INSIDE = ("state_dict", "model", "model_state_dict")
"""Keys of a state dict in checkpoints of timm and Lightning, of torchvision, and of PyTorch's tutorials."""
_COUNTER = "num_batches_tracked"
"""The buffer of batch norm that files from before PyTorch 0.4.1 lack, as many of torchvision do."""
_OLD_DENSE = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)")
"""Names in torchvision's files of DenseNets, `norm.1` in place of `norm1`."""


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a state dict into a model. A file that does not fit is refused in one line, and the model is unchanged.

    Args:
        model: The model, whose weights are replaced.
        path: The file: a state dict of `torch.save` or `.safetensors`, or a checkpoint that holds one as `state_dict`,
            `model` or `model_state_dict`.

    Raises:
        ModelNameError: If the file is no state dict of this model, or holds values that are not finite.
    """
    content, own = _state_dict(path), model.state_dict()
    if content and all(str(key).startswith(_PARALLEL) for key in content):
        content = {key.removeprefix(_PARALLEL): value for key, value in content.items()}
    content = _as_now(content, own)
    faults = [f"{number} keys {kind}: {', '.join(names)}" for kind, number, names in _faults(content, own)]
    if faults:
        raise ModelNameError(
            f"--weights must fit the model, but {path} has {'; '.join(faults)}; see MODEL and --num-classes"
        )
    try:
        model.load_state_dict(content)
    except Exception as error:  # a module may read its extra state as it likes
        raise ModelNameError(f"--weights must fit the model, but {path} does not: {first_line(error)}") from error


def _as_now(content: Mapping[Any, Any], own: Mapping[str, Any]) -> Mapping[Any, Any]:
    """Return a state dict with the names and counters that files of published weights were written without."""
    renamed = {_OLD_DENSE.sub(r"\1\2", key) if isinstance(key, str) else key: value for key, value in content.items()}
    counters = {key: value for key, value in own.items() if key.endswith(_COUNTER) and key not in renamed}
    has_some = any(str(key).endswith(_COUNTER) for key in renamed)
    return renamed if has_some else {**renamed, **counters}


def _state_dict(path: Path) -> Mapping[Any, Any]:
    """Return the state dict in a file of weights."""
    try:
        content = _read(Path(path))
    except ModelNameError:
        raise
    except Exception as error:  # torch.load raises many kinds for files that are none of its own
        is_pickle = isinstance(error, pickle.UnpicklingError)
        reason = "it holds more than tensors, or is no file of torch.save" if is_pickle else first_line(error)
        raise ModelNameError(
            f"--weights must be a state dict, but {path} cannot be read: {reason}; save it with "
            "torch.save(model.state_dict(), PATH)"
        ) from error
    inside = [content[key] for key in _INSIDE if isinstance(content, dict) and isinstance(content.get(key), dict)]
    content = inside[0] if inside else content
    if not isinstance(content, dict):
        raise ModelNameError(f"--weights must be a state dict, but {path} holds a {type(content).__name__}")
    return content


def _read(path: Path) -> Any:
    """Return the content of a file of `torch.save`, with the flags of a training that some hold, or of safetensors."""
    if path.suffix != ".safetensors":
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise ModelNameError(
            f"safetensors must be installed to read {path}, but is not; run: pip install safetensors"
        ) from error
    return load_file(path)


def _faults(content: Mapping[Any, Any], own: Mapping[str, Any]) -> Iterator[tuple[str, int, list[str]]]:
    """Yield each kind of fault with the number of its keys and the first of them."""
    missing, extra = [key for key in own if key not in content], [key for key in content if key not in own]
    both = [(key, content[key], value) for key, value in own.items() if key in content and isinstance(value, Tensor)]
    tensors = [(key, found, value) for key, found, value in both if _has_values(found)]
    sizes = [
        f"{key} ({list(found.shape)} in place of {list(value.shape)})"
        for key, found, value in tensors
        if found.shape != value.shape
    ]
    kinds = [key for key, found, value in tensors if _kind(found) != _kind(value)]
    faults = {
        "too few": missing,
        "too many": extra,
        "that are no plain tensors": [key for key, found, _ in both if not _has_values(found)],
        "of other sizes": sizes,
        "of another kind of numbers": kinds,
        "with values that are not finite": [key for key, found, _ in tensors if not found.isfinite().all()],
    }
    for kind, keys in faults.items():
        if keys:
            yield kind, len(keys), [str(key) for key in keys[:3]]


def _has_values(value: Any) -> bool:
    """Return whether a value is a tensor that plainly holds its numbers."""
    if not isinstance(value, Tensor) or value.is_meta or value.is_quantized:
        return False
    return value.layout == torch.strided


def _kind(tensor: Tensor) -> tuple[bool, bool]:
    """Return the kind of a tensor's numbers: whole, real or complex. Real numbers of any precision are one kind."""
    return tensor.is_floating_point(), tensor.is_complex()
