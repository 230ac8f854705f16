"""The one way in which files of plain values are written into a run directory: atomically, and sealed by a digest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cafenet.common.files import write_json
from cafenet.common.run_files import RunFile
from cafenet.common.seals import sealed


def write_file(file: RunFile, directory: Path, content: Mapping[str, Any]) -> None:
    """Writes a file together with a digest of its content.

    Args:
        file: Description of the file.
        directory: Directory of the file.
        content: Plain values of the file's shape.

    Raises:
        OSError: If the file cannot be written.
    """
    write_json(directory / file.name, sealed(content))
