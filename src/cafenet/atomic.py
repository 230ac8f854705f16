"""Small files that are written in one move: a crash leaves the old one or the new one."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file in one move."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # the temporary name says nothing to anybody
        raise
    finally:
        with suppress(OSError):  # a directory that is not there has nothing to remove
            temporary.unlink(missing_ok=True)
