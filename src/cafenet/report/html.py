"""HTML of the pages: each is one self-contained file that also suits phones and dark mode."""

import html
import io
import json
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

from matplotlib import rc_context
from matplotlib.figure import Figure

_COORDINATES = re.compile(r' (?:x|y|d|transform)="[^"]*"')
_LONG_NUMBER = re.compile(r"(\d\.\d)\d+")  # a tenth of a point is finer than any screen


def document(title: str, parts: Iterable[str]) -> str:
    """Return a whole page, with its style and the script that shows tips.

    Args:
        title: Title of the page.
        parts: HTML of its parts.

    Returns:
        The HTML.
    """
    assets = files("cafenet.report") / "assets"
    style, script = (assets.joinpath(name).read_text() for name in ("page.css", "page.js"))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{text(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>\n{style}</style></head>\n'
        f'<body>{"".join(parts)}<div id="tip" role="tooltip" hidden></div><script>\n{script}</script></body></html>\n'
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
    return f'<div class="wide"><table><tr>{cells}</tr>{"".join(rows)}</table></div>'


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


def figure_part(name: str, title: str, caption: str, figure: Figure) -> str:
    """Return a figure with a heading and a caption.

    Args:
        name: Name of the figure, for its id.
        title: The heading.
        caption: The caption.
        figure: The figure.

    Returns:
        The HTML.
    """
    return (
        f'<h2>{text(title)}</h2><figure id="figure-{name}">{svg(figure)}'
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def svg(figure: Figure) -> str:
    """Return a figure as inline SVG in the page's colours; marks of `figure_style.mark` become data attributes.

    Args:
        figure: The figure.

    Returns:
        The SVG.
    """
    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "cafenet", "font.family": "sans-serif"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    drawn = buffer.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = _COORDINATES.sub(lambda match: _LONG_NUMBER.sub(r"\1", match.group(0)), drawn)
    drawn = drawn.replace("#000000", "currentColor").replace("fill: #ffffff", "fill: none")
    drawn = re.sub(r"<text ", '<text fill="currentColor" ', drawn)
    return re.sub(r'<g id="mark:([^"]*)">', _data_attributes, drawn)


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


def _data_attributes(match: re.Match[str]) -> str:
    """Return the data attributes of a mark."""
    marks = json.loads(unquote(match.group(1)))
    return "<g " + " ".join(f'data-{name}="{text(value)}"' for name, value in marks.items()) + ">"
