"""OpenVINO's files (`.xml` with `.bin` beside it), and OpenVINO on the CPU."""

from pathlib import Path
from typing import Any

import torch

from cafenet.errors import ExportError, first_line
from cafenet.runtimes.session import Inputs, Pass, needed, tensors_in

WEIGHTS = ".bin"
"""Ending of the second file of a model, which holds the weights."""


class OpenVinoSession:
    """A model that OpenVINO has compiled for the CPU."""

    def __init__(self, compiled: Any) -> None:
        """Hold the compiled model.

        Args:
            compiled: An `openvino.CompiledModel`.
        """
        self._compiled, self._request = compiled, compiled.create_infer_request()

    def bind(self, inputs: Inputs) -> Pass:
        """Return a function that runs the model once."""
        request, outputs = self._request, self._compiled.outputs
        arrays = [tensor.contiguous().numpy() for tensor in tensors_in(inputs)]

        def run_once() -> list[Any]:
            """Run the model on the same inputs as before."""
            found = request.infer(arrays, share_inputs=True, share_outputs=True)
            return [found[output] for output in outputs]

        return run_once

    def close(self) -> None:
        """Drop the compiled model."""
        self._compiled = self._request = None


def require_openvino() -> Any:
    """Import OpenVINO.

    Returns:
        The module.

    Raises:
        DeploymentError: If it is missing.
    """
    return needed("openvino", "openvino", "OpenVINO")


def write_openvino(program: torch.export.ExportedProgram, path: Path) -> None:
    """Write a program as a model of OpenVINO.

    Args:
        program: The program.
        path: The `.xml` file; the weights go into a `.bin` file beside it.

    Raises:
        ExportError: If OpenVINO lacks an operator of the program.
    """
    openvino = require_openvino()
    try:
        model = openvino.convert_model(program)
    except Exception as error:  # an op that OpenVINO does not have
        raise ExportError(f"OpenVINO cannot hold this model: {first_line(error)}; use a .pt2 file") from error
    openvino.save_model(model, str(path), compress_to_fp16=False)


def read_openvino(path: Path, num_threads: int | None = None) -> OpenVinoSession:
    """Compile a model of OpenVINO for the CPU.

    Args:
        path: The `.xml` file.
        num_threads: Number of threads, for measurements, where OpenVINO may compute in bf16 if the CPU has it. None
            leaves the number to OpenVINO and computes in f32, for comparisons.

    Returns:
        The session.

    Raises:
        ExportError: If OpenVINO cannot compile the model.
    """
    openvino = require_openvino()
    options: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
    if num_threads is None:
        options["INFERENCE_PRECISION_HINT"] = "f32"
    else:
        options |= {"INFERENCE_NUM_THREADS": num_threads, "NUM_STREAMS": 1}
    try:
        return OpenVinoSession(openvino.Core().compile_model(str(path), "CPU", options))
    except Exception as error:
        raise ExportError(f"OpenVINO cannot run this model: {first_line(error)}; use a .pt2 file") from error
