"""Paths on the command line."""

from pathlib import Path

from cafenet.errors import RecipeError


def some_path(text: str) -> Path:
    """Parse a path and refuse an empty one, which would mean the current directory (an unset variable gives one).

    Args:
        text: The argument.

    Returns:
        The path.

    Raises:
        RecipeError: If the text is empty.
    """
    if not text.strip():
        raise RecipeError(f"a path must name a file or directory, but got {text!r}; write . for the current directory")
    return Path(text)
