"""PyTorch itself as a runtime: eager, compiled by `torch.compile`, or a program that `torch.export` has written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cafenet.errors import DeploymentError, first_line
from cafenet.modules.tensors import tensors_of
from cafenet.runtimes.session import Inputs, Pass


class TorchSession:
    """A callable of PyTorch on a device."""

    def __init__(self, call: Callable[..., Any], device: torch.device | None = None) -> None:
        """Hold the callable.

        Args:
            call: A module or a compiled one.
            device: The device on which it runs; None is the CPU.
        """
        self._call, self._device = call, device or torch.device("cpu")

    def bind(self, inputs: Inputs) -> Pass:
        """Return a function that runs the model once and waits for its device.

        Args:
            inputs: Positional and keyword arguments of the model.

        Returns:
            The function.
        """
        args, kwargs = inputs

        def run_once() -> list[Any]:
            """Run the model on the same inputs as before."""
            output = self._call(*args, **kwargs)
            wait_for(self._device)
            return [output]

        return run_once

    def close(self) -> None:
        """Free nothing, because Python does."""


def compiled(model: nn.Module, inputs: Inputs, device: torch.device) -> TorchSession:
    """Compile a model for inputs of these shapes.

    Args:
        model: The model in eval mode on the device.
        inputs: Positional and keyword arguments of its forward.
        device: The device.

    Returns:
        The session.

    Raises:
        DeploymentError: If the compiler cannot compile the model, or there is no compiler.
    """
    torch._dynamo.reset()  # each width has its own code, and a limit on recompilations would end in eager runs
    session = TorchSession(torch.compile(model, dynamic=False), device)
    try:
        session.bind(inputs)()
    except Exception as error:  # a missing compiler, or an op that Inductor lacks
        raise DeploymentError(
            f"torch.compile must compile the model, but: {first_line(error)}; use the runtime torch"
        ) from error
    return session


class ProgramSession(TorchSession):
    """A program that was read back, whose outputs are flat."""

    def bind(self, inputs: Inputs) -> Pass:
        """Return a function that runs the program once.

        Args:
            inputs: Positional and keyword arguments of the model.

        Returns:
            The function.
        """
        run_once = super().bind(inputs)
        return lambda: list(tensors_of(run_once()))


def write_program(program: torch.export.ExportedProgram, path: Path) -> None:
    """Write a program as a `.pt2` file.

    Args:
        program: The program.
        path: The file.
    """
    with path.open("wb") as file:  # gives the reason if the file cannot be written, which PyTorch does not
        torch.export.save(program, file)


def read_program(path: Path, num_threads: int | None = None) -> ProgramSession:
    """Open a `.pt2` file.

    Args:
        path: The file.
        num_threads: Not used; PyTorch's threads are those of the process.

    Returns:
        The session.
    """
    return ProgramSession(torch.export.load(path).module())


def wait_for(device: torch.device) -> None:
    """Wait until a device is idle (no-op on a CPU).

    Args:
        device: The device.
    """
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()
