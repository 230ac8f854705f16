"""ONNX files, and ONNX Runtime on the CPU."""

import warnings
from pathlib import Path
from typing import Any

import torch

from cafenet.errors import ExportError, first_line
from cafenet.runtimes.session import Inputs, Pass, needed, tensors_in


class OnnxSession:
    """An ONNX file in ONNX Runtime."""

    def __init__(self, session: Any) -> None:
        """Hold the session.

        Args:
            session: An `onnxruntime.InferenceSession`.
        """
        self._session = session

    def bind(self, inputs: Inputs) -> Pass:
        """Return a function that runs the file once; inputs go by their order in the file.

        Args:
            inputs: Positional and keyword arguments of the model.

        Returns:
            The function.
        """
        session, feed = self._session, self.feed(inputs)
        return lambda: session.run(None, feed)

    def feed(self, inputs: Inputs) -> dict[str, Any]:
        """Return inputs as arrays by the names of the file.

        Args:
            inputs: Positional and keyword arguments of the model.

        Returns:
            The arrays; values that are no tensors are constants of the file.
        """
        places, tensors = self._session.get_inputs(), tensors_in(inputs)
        return {place.name: tensor.numpy() for place, tensor in zip(places, tensors, strict=True)}

    def close(self) -> None:
        """Drop the session, and with it the memory of its weights."""
        self._session = None


def require_onnx() -> Any:
    """Import what writing and running ONNX files needs.

    Returns:
        The module `onnxruntime`.

    Raises:
        DeploymentError: If a package is missing.
    """
    needed("onnxscript", "onnx", "ONNX")  # torch.onnx needs it, and says so less clearly
    return needed("onnxruntime", "onnx", "ONNX")


def write_onnx(program: torch.export.ExportedProgram, path: Path) -> None:
    """Write a program as an ONNX file.

    Args:
        program: The program.
        path: The file.

    Raises:
        ExportError: If ONNX lacks an operator of the program.
    """
    require_onnx()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r".*treespec, LeafSpec", FutureWarning)  # torch warns of its own code
            converted = torch.onnx.export(program, dynamo=True, verbose=False)
        assert converted is not None
        converted.save(str(path))
    except OSError:
        raise
    except Exception as error:  # an op that torch.onnx does not have
        raise ExportError(f"ONNX cannot hold or run this model: {first_line(error)}; use a .pt2 file") from error


def read_onnx(path: Path, num_threads: int | None = None) -> OnnxSession:
    """Open an ONNX file in ONNX Runtime.

    Args:
        path: The file.
        num_threads: Number of threads inside an operator; None leaves it to ONNX Runtime.

    Returns:
        The session.

    Raises:
        ExportError: If ONNX Runtime lacks an operator of the file.
    """
    runtime = require_onnx()
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    if num_threads is not None:
        options.intra_op_num_threads, options.inter_op_num_threads = num_threads, 1
    try:
        return OnnxSession(runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]))
    except OSError:
        raise
    except Exception as error:  # an op or a number type that ONNX Runtime does not have
        raise ExportError(f"ONNX cannot hold or run this model: {first_line(error)}; use a .pt2 file") from error
