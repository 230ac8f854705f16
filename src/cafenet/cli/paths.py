"""Paths on the command line."""

from pathlib import Path

from cafenet.errors import RecipeError


def some_path(text: str) -> Path:
    """A path that was written; an empty one (as of a variable that is not set) would mean the current directory."""
    if not text.strip():
        raise RecipeError(f"a path must name a file or directory, but got {text!r}; write . for the current directory")
    return Path(text)
