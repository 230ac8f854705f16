"""The shipped recipes as a list for people; plain, since `rich` takes longer to import than this to run."""

import shutil
import textwrap
from collections.abc import Mapping

_HEAD = {"recipe": "what it does"}


def print_recipes(descriptions: Mapping[str, str]) -> None:
    """Print each name with its description beside it, as wide as the terminal.

    Args:
        descriptions: Description of each recipe, by name.
    """
    indent = max(map(len, [*_HEAD, *descriptions])) + 1
    width = max(shutil.get_terminal_size().columns - 1, indent + 20)
    for name, description in {**_HEAD, **descriptions}.items():
        lines = textwrap.wrap(description, width - indent) or [""]
        print(f"{name:{indent}}{lines[0]}")
        for line in lines[1:]:
            print(" " * indent + line)
