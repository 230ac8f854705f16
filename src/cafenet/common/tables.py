"""Values as tables: the repr of a space, a subnet or a result, for terminals and for notebooks."""

import html
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shown:
    """A title, a table and a line below it. The first column is text, the others are numbers."""

    title: str
    """Line above the table."""
    head: Sequence[str]
    """Names of the columns."""
    rows: Sequence[Sequence[Any]]
    """Cells of each row."""
    foot: str = ""
    """Line below the table."""

    def text(self) -> str:
        """Formats the table for a terminal.

        Returns:
            The text, without a line break at the end.
        """
        from rich.box import SIMPLE_HEAD  # rich takes long to import
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD)
        for number, name in enumerate(self.head):
            table.add_column(name, justify="right" if number else "left", no_wrap=True)
        for row in self.rows:
            table.add_row(*(Text(str(cell)) for cell in row))
        buffer = io.StringIO()
        console = Console(file=buffer, width=1000, color_system=None, markup=False)
        console.print(table)
        lines = [line.rstrip() for line in buffer.getvalue().splitlines()]
        return "\n".join([self.title, *(line for line in lines if line), self.foot]).rstrip("\n")

    def html(self) -> str:
        """Formats the table for a notebook.

        Returns:
            The HTML text.
        """
        head = _cells("th", self.head)
        body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in self.rows)
        foot = f"<p>{html.escape(self.foot)}</p>" if self.foot else ""
        return f"<table><caption>{html.escape(self.title)}</caption><tr>{head}</tr>{body}</table>{foot}"


def ranges(numbers: Iterable[int]) -> str:
    """Writes rising numbers as ranges: 0, 1, 2, 5 becomes `0-2, 5`.

    Args:
        numbers: Whole numbers in rising order.

    Returns:
        The text.
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def _cells(tag: str, cells: Sequence[Any]) -> str:
    sides = ("left", *("right" for _ in cells[1:]))
    return "".join(
        f'<{tag} style="text-align: {side}">{html.escape(str(cell))}</{tag}>'
        for side, cell in zip(sides, cells, strict=True)
    )
