"""Runtimes by name: what `LatencyConfig(runtime=...)` may be, and how a model is made ready in each."""

import importlib.metadata
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cafenet.common.suggestions import did_you_mean
from cafenet.errors import DeploymentError, ExportError, first_line
from cafenet.runtimes.device_command import PREFIX, device_of
from cafenet.runtimes.executorch_xnnpack import require_executorch
from cafenet.runtimes.file_formats import FILE_FORMATS
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
    runtime: str, model: nn.Module, inputs: Inputs, *, num_threads: int, device: torch.device
) -> Iterator[Session]:
    """Make a model ready in a runtime of this process for the duration of a block.

    Args:
        runtime: One of `RUNTIMES`.
        model: The model in eval mode on the device.
        inputs: Positional and keyword arguments of its forward.
        num_threads: Number of threads inside an operator.
        device: The device.

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
    with file_for(_FROM_FILES[runtime].file_format, model, inputs) as path:
        session = FILE_FORMATS[_FROM_FILES[runtime].file_format].read(path, num_threads)
        try:
            _run_first(session, inputs, runtime)
            yield session
        finally:
            session.close()


@contextmanager
def file_for(file_format: str, model: nn.Module, inputs: Inputs) -> Iterator[Path]:
    """Write a model to a temporary file that lasts as long as a block.

    Args:
        file_format: Name of the format.
        model: The model in eval mode on the CPU.
        inputs: Positional and keyword arguments of its forward, whose shapes the file fixes.

    Yields:
        The path of the file.

    Raises:
        ExportError: If the format cannot hold the model.
    """
    chosen = FILE_FORMATS[file_format]
    with tempfile.TemporaryDirectory(prefix="cafenet-") as directory:
        path = Path(directory) / f"model{chosen.ending}"
        chosen.write(exported(model, inputs), path)
        yield path


def _run_first(session: Session, inputs: Inputs, runtime: str) -> None:
    """Run a session once, because some runtimes notice a missing operator only then."""
    try:
        session.bind(inputs)()
    except Exception as error:
        raise ExportError(f"{runtime} cannot run this model: {first_line(error)}; use another runtime") from error
