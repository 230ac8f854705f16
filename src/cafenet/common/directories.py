"""Directories that a user names, which are refused at once if files cannot be written into them."""

import os
import tempfile
from pathlib import Path

from cafenet.errors import CafeNetError, first_line


def usable_directory(directory: str | os.PathLike[str], error: type[CafeNetError]) -> Path:
    """Creates a directory if it is missing, and checks that files can be written into it.

    Args:
        directory: The directory as the user gave it.
        error: Class of the error to raise.

    Returns:
        The directory as a path.

    Raises:
        CafeNetError: As an `error`, if the directory cannot be used.
    """
    try:
        path = Path(directory)
        if not os.fspath(directory):
            raise ValueError("its name is empty")
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except (OSError, ValueError, TypeError) as problem:
        reason = (problem.strerror if isinstance(problem, OSError) else None) or first_line(problem)
        raise error(
            f"directory must be one that files can be written into, but {str(directory)[:80]!r} is not: {reason}; give "
            "another one"
        ) from problem
    return path
