"""HTML of the pages: each is one self-contained file for phones and wide screens, light and dark, and for print."""

import html
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any


def document(title: str, parts: Iterable[str]) -> str:
    """Return a whole page, with its style and the script that shows tips.

    Args:
        title: Title of the page.
        parts: HTML of its parts.

    Returns:
        The HTML.
    """
    script = asset("page.js")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{text(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>\n{asset("palette.css")}'
        f"{asset('page.css')}{asset('chart.css')}</style></head>\n"
        f'<body><main>{"".join(parts)}</main><div id="tip" role="tooltip" hidden></div>'
        f"<script>\n{script}</script></body></html>\n"
    )


def asset(name: str) -> str:
    """Return a style or script of the pages.

    Args:
        name: Name of the file.

    Returns:
        Its text.
    """
    return (files("cafenet.report") / "assets").joinpath(name).read_text()


def masthead(kind: str, name: str, title: str) -> str:
    """Return the head of a page: what it is, of which run, and its title.

    Args:
        kind: The kind of page, for example "Report".
        name: Name of the run.
        title: The title.

    Returns:
        The HTML.
    """
    return (
        '<header><p class="brand"><svg viewBox="0 0 24 16" width="24" height="16" aria-hidden="true">'
        '<path class="original" d="M1 1h4v14H1zM7 0h4v16H7zM13 2h4v12h-4zM19 4h4v8h-4z"/>'
        '<path class="own" d="M1 4h4v8H1zM7 6h4v4H7zM13 3h4v10h-4zM19 6h4v4h-4z"/></svg>'
        f"<b>CafeNet</b> <span>{text(kind)}</span> <span>{text(name)}</span></p><h1>{text(title)}</h1></header>"
    )


def table(head: Sequence[str], rows: Iterable[str]) -> str:
    """Return a table that scrolls by itself on a narrow screen.

    Args:
        head: Names of the columns.
        rows: HTML of the rows.

    Returns:
        The HTML.
    """
    cells = "".join(f"<th>{text(name)}</th>" for name in head)
    return f'<div class="wide" tabindex="0"><table><tr>{cells}</tr>{"".join(rows)}</table></div>'


def row(cells: Iterable[Any], kind: str = "", texts: Sequence[int] = ()) -> str:
    """Return one row of a table.

    Args:
        cells: The cells.
        kind: CSS class of the row.
        texts: Numbers of the cells that hold running text.

    Returns:
        The HTML.
    """
    inside = "".join(
        f"<td{' class=text' if number in texts else ''}>{text(cell)}</td>" for number, cell in enumerate(cells)
    )
    return f"<tr{f' class={kind}' if kind else ''}>{inside}</tr>"


def cards(head: Sequence[str], rows: Iterable[tuple[str, Sequence[Any]]], kind: str = "ranked") -> str:
    """Return a table whose rows become cards on a narrow screen, so that no column is off-screen.

    The first column names the row; in a ranked table, the second is its most important value.

    Args:
        head: Names of the columns.
        rows: CSS class and cells of each row; empty cells are left out of cards.
        kind: "ranked", or "plain" where no column is more important than the others.

    Returns:
        The HTML.
    """
    top = "".join(f'<th scope="col">{text(name)}</th>' for name in head)
    body = "".join(_card(head, kind, cells) for kind, cells in rows)
    return f'<table class="cards {kind}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def _card(head: Sequence[str], kind: str, cells: Sequence[Any]) -> str:
    """Return one row of a table of cards."""
    first, *rest = cells
    inside = "".join(
        f'<td data-head="{text(name)}"{"" if str(cell) else " class=empty"}>{text(cell)}</td>'
        for name, cell in zip(head[1:], rest, strict=True)
    )
    return f'<tr class="{kind}"><th scope="row">{text(first)}</th>{inside}</tr>'


def folded(title: str, inside: str, name: str = "") -> str:
    """Return a part that is folded until somebody opens it.

    Args:
        title: Its heading.
        inside: HTML of the part.
        name: Its id.

    Returns:
        The HTML.
    """
    return f"<details{f' id={name}' if name else ''}><summary>{text(title)}</summary>{inside}</details>"


def data(name: str, content: Any) -> str:
    """Return values for the script as a JSON block.

    Args:
        name: Id of the block.
        content: The values.

    Returns:
        The HTML.
    """
    encoded = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{encoded}</script>'


def text(value: Any) -> str:
    """Return a value as escaped text.

    Args:
        value: The value.

    Returns:
        The HTML.
    """
    return html.escape(str(value))
