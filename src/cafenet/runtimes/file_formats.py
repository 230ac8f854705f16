"""The formats of files for deployment by name: how a program is written and how a file is opened."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch.export import ExportedProgram

from cafenet.runtimes.executorch_xnnpack import read_executorch, write_executorch
from cafenet.runtimes.onnx_runtime import read_onnx, write_onnx
from cafenet.runtimes.open_vino import read_openvino, write_openvino
from cafenet.runtimes.session import Session
from cafenet.runtimes.torch_eager import read_program, write_program


@dataclass(frozen=True)
class FileFormat:
    """A format of files for deployment."""

    ending: str
    """Ending of the file, with its dot."""
    write: Callable[[ExportedProgram, Path], None]
    """Writes a program to a file."""
    read: Callable[[Path, int | None], Session]
    """Opens a file with a number of threads; None leaves the number to the runtime."""


FILE_FORMATS = {
    "pt2": FileFormat(".pt2", write_program, read_program),
    "onnx": FileFormat(".onnx", write_onnx, read_onnx),
    "openvino": FileFormat(".xml", write_openvino, read_openvino),
    "executorch": FileFormat(".pte", write_executorch, read_executorch),
}
"""The formats by name."""


def format_of_ending(ending: str) -> str:
    """Return the name of the format with an ending: `pte` is `executorch`.

    Args:
        ending: The ending or a name, without a dot.

    Returns:
        The name of the format, or the text itself if no format has this ending.
    """
    return next((name for name, each in FILE_FORMATS.items() if each.ending == f".{ending}"), ending)
