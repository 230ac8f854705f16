"""An extension of griffe for the API reference: lines `name: what it means` of a docstring become a list."""

import re
from typing import Any

import griffe


class ParameterLists(griffe.Extension):
    """Only names that the function takes begin an item, so that other text stays as it is."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Called by griffe for every function that it has read."""
        if func.docstring is not None:
            func.docstring.value = with_lists(func.docstring.value, {each.name for each in func.parameters})


def with_lists(text: str, parameters: set[str]) -> str:
    """`train, val: the data` is an item if both are parameters; what follows on indented lines belongs to it."""
    lines: list[str] = []
    is_in_list = False
    for line in text.splitlines():
        match = re.match(r"(\w+(?:, \w+)*): (.*)", line)
        if match and set(match[1].split(", ")) <= parameters:
            lines += [] if is_in_list else [""]
            lines.append(f"- **{match[1]}**: {match[2]}")
            is_in_list = True
            continue
        if is_in_list and line and not line.startswith(" "):
            lines.append("")
            is_in_list = False
        lines.append(line)
    return "\n".join(lines)
