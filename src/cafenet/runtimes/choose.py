"""Runtimes by name: what `LatencyConfig(runtime=...)` may be, and how a model is made ready in each."""

import importlib.metadata
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from cafenet.common.suggestions import did_you_mean
from cafenet.errors import DeploymentError, ExportError, first_line
from cafenet.runtimes.device_command import PREFIX, device_of
from cafenet.runtimes.executorch_xnnpack import require_executorch
from cafenet.runtimes.file_formats import FILE_FORMATS
from cafenet.runtimes.int8 import QUANTISERS, quantise, require_quantiser
from cafenet.runtimes.onnx_runtime import require_onnx
from cafenet.runtimes.open_vino import require_openvino
from cafenet.runtimes.program import exported
from cafenet.runtimes.session import Inputs, Session
from cafenet.runtimes.torch_eager import TorchSession, compiled


@dataclass(frozen=True)
class _FromFile:
    """A runtime that opens files."""

    file_format: str
    require: Callable[[], Any]
    package: str


_FROM_FILES = {
    "onnxruntime": _FromFile("onnx", require_onnx, "onnxruntime"),
    "openvino": _FromFile("openvino", require_openvino, "openvino"),
    "executorch": _FromFile("executorch", require_executorch, "executorch"),
}
RUNTIMES = ("torch", "torch.compile", *_FROM_FILES)
"""The runtimes that run in this process."""


def check_runtime_name(runtime: Any, device: str) -> None:
    """Check that a runtime exists, is installed, and runs on a device.

    Args:
        runtime: A name, a `command:...` or a function.
        device: The device of PyTorch.

    Raises:
        DeploymentError: If it does not.
    """
    if is_device(runtime):
        device_of(runtime)
        return
    if runtime not in RUNTIMES:
        near = did_you_mean(runtime, RUNTIMES, most=1) if isinstance(runtime, str) else ""
        raise DeploymentError(
            f"runtime must be {', '.join(RUNTIMES)}, a function or 'command:FORMAT PROGRAM {{file}}', but is "
            f"{runtime!r}" + (f"; {near}" if near else "")
        )
    if runtime in _FROM_FILES:
        _FROM_FILES[runtime].require()
        if torch.device(device).type != "cpu":
            raise DeploymentError(f"the runtime {runtime} runs on the CPU here, but device is {device!r}; use cpu")


def file_format_of(runtime: str | Callable[[Path], float]) -> str:
    """Name the format of the files that a runtime opens.

    Args:
        runtime: A name, a `command:...` or a function.

    Returns:
        The format; that of PyTorch's own programs is pt2.
    """
    if is_device(runtime):
        return device_of(runtime).file_format
    return _FROM_FILES[str(runtime)].file_format if runtime in _FROM_FILES else "pt2"


def check_quantised(runtime: str | Callable[[Path], float]) -> None:
    """Check that a runtime can be measured with int8 files, and that the quantiser is installed.

    Args:
        runtime: A name, a `command:...` or a function.

    Raises:
        DeploymentError: If its format has no quantiser, or a package is missing.
    """
    file_format = file_format_of(runtime)
    if file_format not in QUANTISERS:
        runtimes = [name for name, each in _FROM_FILES.items() if each.file_format in QUANTISERS]
        raise DeploymentError(
            f"quantize='int8' needs one of the runtimes {', '.join(runtimes)}, or a device that takes their files, but "
            f"the runtime is {runtime!r}"
        )
    require_quantiser(file_format)


def is_device(runtime: Any) -> bool:
    """Return whether a runtime answers milliseconds from elsewhere.

    Args:
        runtime: A name, a `command:...` or a function.

    Returns:
        True for functions and commands.
    """
    return callable(runtime) or (isinstance(runtime, str) and runtime.startswith(PREFIX))


def made_with(runtime: str | Callable[[Path], float]) -> dict[str, str]:
    """Name a runtime in a file of measurements.

    Args:
        runtime: A name, a `command:...` or a function.

    Returns:
        The name, and the version of the package if CafeNet runs it.
    """
    if is_device(runtime):
        return {"runtime": device_of(runtime).name, "runtime_version": ""}
    name = str(runtime)
    package = _FROM_FILES[name].package if name in _FROM_FILES else "torch"
    return {"runtime": name, "runtime_version": importlib.metadata.version(package)}


@contextmanager
def prepared(
    runtime: str,
    model: nn.Module,
    inputs: Inputs,
    *,
    num_threads: int,
    device: torch.device,
    quantize: str | None = None,
) -> Iterator[Session]:
    """Make a model ready in a runtime of this process for the duration of a block.

    Args:
        runtime: One of `RUNTIMES`.
        model: The model in eval mode on the device.
        inputs: Positional and keyword arguments of its forward.
        num_threads: Number of threads inside an operator.
        device: The device.
        quantize: "int8" runs the int8 file of the model; None runs it as it is.

    Yields:
        The session.

    Raises:
        CafeNetError: If the runtime lacks an operator of the model.
    """
    if runtime == "torch":
        yield TorchSession(model, device)
        return
    if runtime == "torch.compile":
        yield compiled(model, inputs, device)
        return
    with file_for(_FROM_FILES[runtime].file_format, model, inputs, quantize) as path:
        session = FILE_FORMATS[_FROM_FILES[runtime].file_format].read(path, num_threads)
        try:
            _run_first(session, inputs, runtime)
            yield session
        finally:
            session.close()


@contextmanager
def file_for(file_format: str, model: nn.Module, inputs: Inputs, quantize: str | None = None) -> Iterator[Path]:
    """Write a model to a temporary file that lasts as long as a block.

    Args:
        file_format: Name of the format.
        model: The model in eval mode on the CPU.
        inputs: Positional and keyword arguments of its forward, whose shapes the file fixes.
        quantize: "int8" writes an int8 file. Its ranges are those of random inputs, because they change neither its
            time nor its size.

    Yields:
        The path of the file, which is alone in its directory but for its weights.

    Raises:
        ExportError: If the format cannot hold the model.
    """
    chosen = FILE_FORMATS[file_format]
    with tempfile.TemporaryDirectory(prefix="cafenet-") as directory:
        path = Path(directory) / f"model{chosen.ending}"
        if quantize is None:
            chosen.write(exported(model, inputs), path)
        else:
            quantise(file_format, model, [_noise(inputs)], path)
        yield path


def _noise(inputs: Inputs) -> Inputs:
    """Return inputs with random values in place of numbers, which may all be zero; whole numbers stay."""
    generator = torch.Generator().manual_seed(0)

    def noise(leaf: Any) -> Any:
        is_number = isinstance(leaf, Tensor) and leaf.is_floating_point()
        return torch.randn(leaf.shape, generator=generator).to(leaf.dtype) if is_number else leaf

    noisy: Inputs = tree_map(noise, inputs)
    return noisy


def _run_first(session: Session, inputs: Inputs, runtime: str) -> None:
    """Run a session once, because some runtimes notice a missing operator only then."""
    try:
        session.bind(inputs)()
    except Exception as error:
        raise ExportError(f"{runtime} cannot run this model: {first_line(error)}; use another runtime") from error
