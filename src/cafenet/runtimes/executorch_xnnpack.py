"""ExecuTorch's files (`.pte`) with operators of XNNPACK, and ExecuTorch in this process."""

import logging
import warnings
from pathlib import Path
from typing import Any

import torch

from cafenet.errors import ExportError, first_line
from cafenet.runtimes.session import Inputs, Pass, needed, tensors_in


class ExecutorchSession:
    """A program in ExecuTorch."""

    def __init__(self, program: Any) -> None:
        """Load the method `forward`.

        Args:
            program: An `executorch.runtime.Program`.
        """
        self._program, self._method = program, program.load_method("forward")

    def bind(self, inputs: Inputs) -> Pass:
        """Return a function that runs the program once."""
        method, tensors = self._method, [tensor.contiguous() for tensor in tensors_in(inputs)]
        return lambda: method.execute(tensors)

    def close(self) -> None:
        """Drop the program."""
        self._method = self._program = None


def require_executorch() -> None:
    """Import ExecuTorch.

    Raises:
        DeploymentError: If a package is missing.
    """
    with quiet():
        needed("executorch.exir", "executorch", "ExecuTorch")
        needed("executorch.runtime", "executorch", "ExecuTorch")


def write_executorch(program: torch.export.ExportedProgram, path: Path) -> None:
    """Write a program for ExecuTorch; what XNNPACK does not take runs on ExecuTorch's portable operators.

    Args:
        program: The program.
        path: The `.pte` file.

    Raises:
        ExportError: If ExecuTorch lacks an operator of the program.
    """
    require_executorch()
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    try:
        with quiet():
            lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    except Exception as error:  # an op that ExecuTorch does not have
        raise ExportError(f"ExecuTorch cannot hold this model: {first_line(error)}; use a .pt2 file") from error
    path.write_bytes(lowered.buffer)


def read_executorch(path: Path, num_threads: int | None = None) -> ExecutorchSession:
    """Load a `.pte` file into ExecuTorch.

    Args:
        path: The file.
        num_threads: Number of threads of XNNPACK, for all programs of the process; None leaves it.

    Returns:
        The session.

    Raises:
        ExportError: If ExecuTorch lacks an operator of the program.
    """
    require_executorch()
    from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
    from executorch.runtime import Runtime

    try:
        if num_threads is not None:
            _unsafe_reset_threadpool(num_threads)
        return ExecutorchSession(Runtime.get().load_program(path.read_bytes()))
    except RuntimeError as error:
        raise ExportError(f"ExecuTorch cannot run this model: {first_line(error)}; use a .pt2 file") from error


class quiet(warnings.catch_warnings):
    """Hides what ExecuTorch and torchao say about their own imports and deprecations."""

    def __enter__(self) -> None:
        """Hide warnings and log lines."""
        super().__enter__()
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)

    def __exit__(self, *error: Any) -> None:
        """Show them again."""
        logging.disable(logging.NOTSET)
        super().__exit__(*error)
