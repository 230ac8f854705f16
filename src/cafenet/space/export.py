"""Export of slim models to files for deployment; each file is read back and compared with the model after writing."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from cafenet.common.files import replaced
from cafenet.common.options import check_arguments
from cafenet.errors import CafeNetWarning, ExportError, first_line
from cafenet.modules.calling import training_mode
from cafenet.modules.copying import RECORD, copy_of
from cafenet.modules.inputs import call_arguments, copied
from cafenet.modules.tensors import named_tensors, tensors_of
from cafenet.modules.unwrapping import unwrap
from cafenet.runtimes.file_formats import FILE_FORMATS, format_of_ending
from cafenet.runtimes.int8 import quantise
from cafenet.runtimes.open_vino import WEIGHTS
from cafenet.runtimes.program import exported
from cafenet.runtimes.session import Inputs, outputs_of
from cafenet.space.batch_sizes import batch_size, open_batch, with_batch_size
from cafenet.space.calibration import calibration_inputs
from cafenet.space.export_formats import ENDINGS, FORMATS, QUANTISED
from cafenet.space.extraction import SlimRecord
from cafenet.space.layout import num_positions
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
    quantize: Literal["int8"] | None = None,
    calibration: Any = None,
) -> float:
    """Writes a model to a file for deployment, reads it back and compares the outputs.

    If the outputs differ too much, the file is removed and an error is raised. The model itself is not changed. Files
    take any batch size, which is checked at the example's and at another. If the model's code fixes the batch size, the
    file takes the example's only, and a `CafeNetWarning` says so.

    Args:
        model: The model. The format `pt` takes slim models only; the other formats take any model.
        example_inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments. All formats but `pt`
            fix the shapes of all inputs to these, except for the batch size: the first dimension of the first
            tensor, and that of every tensor with the same size.
        path: Path of the file. Its directory must exist.
        kind: Format of the file: `"pt"` for `cafenet.load`, `"pt2"` for `torch.export.load`, `"onnx"`, `"openvino"`
            (`.xml` with `.bin` beside it) or `"executorch"` (`.pte`, with XNNPACK). None takes the format from the
            ending of `path`.
        fixed_batch: Whether the file fixes the batch size, too, as some runtimes prefer. `executorch` and int8 files
            always do.
        quantize: `"int8"` rounds weights and activations to 8 bits by the quantiser of the format: ONNX Runtime's,
            OpenVINO's NNCF or ExecuTorch's.
        calibration: Training data for `quantize`: a data set, a loader or an iterable of batches. 128 examples are
            enough, and no more are used.

    Returns:
        The largest difference between the outputs of the file and of the model, relative to the largest output. An int8
        file is compared on the calibration data, and has no limit; evaluate it with
        `cafenet.evaluate(FileModel(path), data)`.

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
    kind = format_of_ending(kind or target.suffix.removeprefix("."))
    _check_format(kind, target, quantize)
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
        with _replaced(target, kind) as temporary, training_mode(model, False), torch.no_grad():
            if quantize is not None:
                batches = calibration_inputs(calibration, call_arguments(example_inputs))
                return _written_int8(model, batches, temporary, target, kind)
            is_fixed = fixed_batch or kind in ("pt", "executorch") or not batch_size((args, kwargs))
            difference = (_written if is_fixed else _written_open)(model, (args, kwargs), temporary, target, kind)
    except OSError as error:
        raise ExportError(f"{target} cannot be written: {error.strerror or error}") from error
    return difference


def _written_open(model: nn.Module, inputs: Inputs, temporary: Path, target: Path, kind: str) -> float:
    """Write the file for any batch size, or for the example's with a warning if the model's code allows no other."""
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
        setattr(
            full.get_submodule(slot.module),
            slot.attribute,
            slot.value(num_positions(record.layout.patterns[slot.pattern])),
        )
    return full


def _write_file(kind: str, model: nn.Module, inputs: Inputs, path: Path, dynamic_shapes: Any) -> Runner:
    """Writes a format of a runtime and opens it."""
    FILE_FORMATS[kind].write(exported(model, inputs, dynamic_shapes), path)
    return _opened(kind, path, inputs)


def _opened(kind: str, path: Path, inputs: Inputs) -> Runner:
    """Opens a file and runs it once, because some runtimes miss an operator only then."""
    session = FILE_FORMATS[kind].read(path, None)
    try:
        outputs_of(session, inputs)
    except OSError:
        raise
    except Exception as error:
        raise ExportError(f"{kind} cannot run this model: {first_line(error)}; use a .pt2 file") from error
    return lambda inputs: outputs_of(session, inputs)


_WRITERS: dict[str, Callable[[nn.Module, Inputs, Path, Any], Runner]] = {
    "pt": _write_pt,
    **{kind: partial(_write_file, kind) for kind in FILE_FORMATS},
}


def _written_int8(model: nn.Module, batches: list[Inputs], temporary: Path, target: Path, kind: str) -> float:
    """Writes an int8 file and returns the difference on the first calibration batch."""
    quantise(kind, model, batches, temporary)
    difference = _difference(_run(model, batches[0]), _opened(kind, temporary, batches[0])(batches[0]))
    if not difference < float("inf"):  # nan, too
        raise ExportError(f"an int8 file must give outputs of the same shapes and numbers, but {target} does not")
    return difference


def _check_format(kind: str, target: Path, quantize: str | None) -> None:
    """Refuses formats that there are not, and those that cannot be written under this name."""
    if kind not in FORMATS:
        raise ExportError(
            f"the format must be one of {', '.join(FORMATS)}, but got {kind!r}; use --format or an ending"
        )
    if kind == "openvino" and target.suffix != ".xml":
        raise ExportError(f"a file of OpenVINO must end in .xml, for its weights are beside it, but is {target}")
    if quantize not in (None, "int8"):
        raise ExportError(f"quantize must be 'int8' or None, but is {quantize!r}")
    if quantize is not None and kind not in QUANTISED:
        raise ExportError(f"quantize='int8' needs a format of {', '.join(QUANTISED)}, but the format is {kind}")


@contextmanager
def _replaced(target: Path, kind: str) -> Iterator[Path]:
    """Provides a temporary name as `replaced` does; the weights of OpenVINO take their place beside the file."""
    with replaced(target, f".{ENDINGS.get(kind, kind)}") as temporary:
        weights = temporary.with_suffix(WEIGHTS)
        try:
            yield temporary
            if weights.exists():
                weights.replace(target.with_suffix(WEIGHTS))
        finally:
            weights.unlink(missing_ok=True)


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
