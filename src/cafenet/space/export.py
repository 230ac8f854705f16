"""Export of slim models to files for deployment; each file is read back and compared with the model after writing."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cafenet.common.extras import install
from cafenet.common.files import replaced
from cafenet.common.options import check_arguments
from cafenet.errors import CafeNetWarning, ExportError, first_line
from cafenet.modules.calling import (
    RECORD,
    call_arguments,
    copied,
    copy_of,
    named_tensors,
    tensors_of,
    training_mode,
    unwrap,
)
from cafenet.space.batch_sizes import Inputs, batch_size, open_batch, with_batch_size
from cafenet.space.export_formats import FORMATS
from cafenet.space.extraction import SlimRecord
from cafenet.space.slim_file import load, save

_TOLERANCE = 1e-3
"""Largest accepted difference, relative to the largest output."""

Runner = Callable[[Inputs], list[Tensor]]
"""Runs a file that was read back on inputs, and returns its outputs."""


def export(
    model: nn.Module,
    example_inputs: Any,
    path: str | os.PathLike[str],
    kind: str | None = None,
    *,
    fixed_batch: bool = False,
) -> float:
    """Writes a model to a file for deployment, reads it back and compares the outputs.

    If the outputs differ too much, the file is removed and an error is raised. The model itself is not changed. Files
    take any batch size, which is checked at the example's and at another. If the model's code fixes the batch size, the
    file takes the example's only, and a `CafeNetWarning` says so.

    Args:
        model: The model. The format `pt` takes slim models only; the other formats take any model.
        example_inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments. The formats `pt2` and
            `onnx` fix the shapes of all inputs to these, except for the batch size: the first dimension of the first
            tensor, and that of every tensor with the same size.
        path: Path of the file. Its directory must exist.
        kind: Format of the file: `"pt"` for `cafenet.load`, `"pt2"` for `torch.export.load`, or `"onnx"`. None takes
            the format from the ending of `path`.
        fixed_batch: Whether the formats `pt2` and `onnx` fix the batch size, too, as some runtimes prefer.

    Returns:
        The largest difference between the outputs of the file and of the model, relative to the largest output.

    Raises:
        ExportError: If the format is unknown, if the model cannot be exported, if the file cannot be written, or if its
            outputs differ.
        SlimFileError: If the format is `pt` and the model is not a slim model.

    Examples:
        >>> import tempfile
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 10, 3))
        >>> images = torch.zeros(1, 3, 8, 8)
        >>> slim = cafenet.trace(model, images).extract({"0": 4})
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     cafenet.export(slim, images, f"{directory}/slim.pt")
        0.0
    """
    check_arguments(
        ExportError, path=(path, str | os.PathLike), kind=(kind, str | None), fixed_batch=(fixed_batch, bool)
    )
    target = Path(path)
    kind = kind or target.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise ExportError(
            f"the format must be one of {', '.join(FORMATS)}, but got {kind!r}; use --format or an ending"
        )
    if not target.parent.is_dir():
        raise ExportError(f"the directory of {target} must exist, but does not")
    if not os.access(target.parent, os.W_OK):
        raise ExportError(f"the directory of {target} must be writable, but is not")
    model = _on_cpu(unwrap(model))
    args, kwargs = call_arguments(example_inputs)
    generator = torch.Generator().manual_seed(0)
    args = tuple(_noise(each, generator) for each in args)
    kwargs = {name: _noise(each, generator) for name, each in kwargs.items()}
    try:
        with replaced(target, f".{kind}") as temporary, training_mode(model, False), torch.no_grad():
            is_fixed = fixed_batch or kind == "pt" or not batch_size((args, kwargs))
            difference = (_written if is_fixed else _written_open)(model, (args, kwargs), temporary, target, kind)
    except OSError as error:
        raise ExportError(f"{target} cannot be written: {error.strerror or error}") from error
    return difference


def _written_open(model: nn.Module, inputs: Inputs, temporary: Path, target: Path, kind: str) -> float:
    """Like `_written`, for any batch size if the model's code allows, or else for the example's with a warning."""
    size = batch_size(inputs) or 1
    wide = with_batch_size(inputs, size + 2)  # torch.export would take a batch of 1 for a constant
    try:
        run = _WRITERS[kind](model, wide, temporary, open_batch(model, wide))
        return max(_checked(run, model, each, target) for each in (wide, inputs))
    except OSError:
        raise
    except Exception as error:  # a model whose code fixes the batch may fail in any way at another one
        difference = _written(model, inputs, temporary, target, kind)
        warnings.warn(
            f"{target} takes batches of {size} only, because at {size + 2}: {first_line(error)}",
            CafeNetWarning,
            stacklevel=3,
        )
        return difference


def _written(model: nn.Module, inputs: Inputs, temporary: Path, target: Path, kind: str) -> float:
    """Writes the file under its temporary name for inputs of these shapes, and returns the difference after reading it
    back if that is small enough.
    """
    return _checked(_WRITERS[kind](model, inputs, temporary, None), model, inputs, target)


def _checked(run: Runner, model: nn.Module, inputs: Inputs, target: Path) -> float:
    """Compares the outputs of a file and of the model on some inputs."""
    expected = _run(model, inputs)
    if not any(tensor.numel() for tensor in expected):
        raise ExportError("a written model is compared by its outputs, but this one returns no values")
    difference = _difference(expected, run(inputs))
    if not difference <= _TOLERANCE:
        raise ExportError(
            f"a written model must give the same outputs, but {target} differs by {difference:.2g} of the largest"
        )
    return difference


def _write_pt(model: nn.Module, inputs: Inputs, path: Path, dynamic_shapes: Any) -> Runner:
    save(model, path)
    loaded = load(path, _full_size(model)).eval()
    return lambda inputs: _run(loaded, inputs)


def _full_size(model: nn.Module) -> nn.Module:
    """Rebuilds a model of the full size for reading back: the slim model with tensors and attributes of their former
    sizes.
    """
    full = copy_of(unwrap(model))
    record: SlimRecord = getattr(full, RECORD)
    for name, tensor in named_tensors(full).items():
        if name in record.full_shapes:  # else a table that a forward made on first use
            tensor.data = torch.zeros(record.full_shapes[name], dtype=tensor.dtype, device=tensor.device)
    for slot in record.layout.attributes:
        setattr(full.get_submodule(slot.module), slot.attribute, slot.value(record.layout.patterns[slot.pattern].size))
    return full


def _write_pt2(model: nn.Module, inputs: Inputs, path: Path, dynamic_shapes: Any) -> Runner:
    program = _exported(model, inputs, dynamic_shapes)
    with path.open("wb") as file:  # gives the reason if the file cannot be written, which PyTorch does not
        torch.export.save(program, file)
    loaded = torch.export.load(path).module()
    return lambda inputs: _run(loaded, inputs)


def _write_onnx(model: nn.Module, inputs: Inputs, path: Path, dynamic_shapes: Any) -> Runner:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch.onnx needs it, and says so less clearly
    except ImportError as error:
        raise ExportError(f"ONNX needs {error.name}, which is not installed; {install('onnx')}") from error
    exported = _exported(model, inputs, dynamic_shapes)
    try:
        program = torch.onnx.export(exported, dynamo=True, verbose=False)
        assert program is not None
        program.save(str(path))
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        session.run(None, _onnx_feed(session, inputs))
    except OSError:
        raise
    except Exception as error:  # an op or a number type that torch.onnx or onnxruntime does not have
        raise ExportError(f"ONNX cannot hold or run this model: {first_line(error)}; use a .pt2 file") from error
    return lambda inputs: [torch.from_numpy(output) for output in session.run(None, _onnx_feed(session, inputs))]


def _onnx_feed(session: Any, inputs: Inputs) -> dict[str, Any]:
    """Inputs of a session by their names; non-tensors are constants of the file."""
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)]
    return {place.name: tensor.numpy() for place, tensor in zip(session.get_inputs(), tensors, strict=True)}


_WRITERS = {"pt": _write_pt, "pt2": _write_pt2, "onnx": _write_onnx}


def _exported(model: nn.Module, inputs: Inputs, dynamic_shapes: Any) -> torch.export.ExportedProgram:
    try:
        return torch.export.export(model, *copied(inputs), dynamic_shapes=dynamic_shapes)
    except Exception as error:  # torch.export has many ways to say that a forward is too dynamic
        raise ExportError(
            f"torch.export cannot follow this model's forward: {first_line(error)}; use a .pt file"
        ) from error


def _noise(value: Any, generator: torch.Generator) -> Any:
    """Replaces floating-point inputs by random values, so that a difference between the outputs shows."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return torch.randn(value.shape, generator=generator, dtype=torch.float32).to(value.dtype)
    return value.cpu() if isinstance(value, Tensor) else value


def _on_cpu(model: nn.Module) -> nn.Module:
    """The model itself if it is on the CPU, or else a copy on the CPU, where files are written and compared."""
    is_there = all(tensor.device.type == "cpu" for tensor in (*model.parameters(), *model.buffers()))
    return model if is_there else copy_of(model).cpu()


def _run(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    """Runs the model on copies of the inputs, because a forward may write to them."""
    args, kwargs = copied(inputs)
    return list(tensors_of(model(*args, **kwargs)))


def _difference(expected: list[Tensor], found: list[Tensor]) -> float:
    """Largest difference relative to the largest finite value; for other numbers than floats it is 0 or infinite."""
    if [tensor.shape for tensor in expected] != [tensor.shape for tensor in found]:
        return float("inf")
    differences, largest = [0.0], 1e-12
    for tensor, other in zip(expected, found, strict=True):
        if not tensor.numel():
            continue
        same = tensor == other
        if tensor.is_floating_point() or tensor.is_complex():
            apart = (tensor - other).abs().masked_fill(same, 0)  # equal infinities would differ by nan
            differences.append(float(apart.max()))
            largest = max(largest, float(tensor.abs().nan_to_num(0, 0, 0).max()))
        else:
            differences.append(0.0 if bool(same.all()) else float("inf"))
    return float(np.max(differences)) / largest  # nan where one is
