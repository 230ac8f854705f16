"""Figures on a page, and the same figures as SVG files of their own."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cafenet.common.files import write_text
from cafenet.report.html import asset, folded, text
from cafenet.report.plot import SHAPES, Figure, Key

_WIDTH, _LEFT, _TOP, _BOTTOM = 720, 56, 36, 50


def figure_part(name: str, figure: Figure) -> str:
    """Return a figure with its heading and caption; a detail is folded.

    Args:
        name: Name of the figure, for its id.
        figure: The figure.

    Returns:
        The HTML.
    """
    keys = [key for chart in figure.charts for key in chart.keys]
    charts = "".join(f'<div class="chart">{chart.svg()}</div>' for chart in figure.charts)
    several = " several" if len(figure.charts) > 1 else ""
    inside = (
        f'<figure id="figure-{name}"><div class="charts{several}">{charts}</div>{_legend(keys)}'
        f"<figcaption>{text(figure.caption)}</figcaption></figure>"
    )
    if figure.is_detail:
        return folded(figure.title, inside)
    return f"<section><h2>{text(figure.title)}</h2>{inside}</section>"


def _legend(keys: Sequence[Key]) -> str:
    """Return a legend of buttons, which hide and show their series."""
    if not keys:
        return ""
    entries = "".join(
        f'<li><button type="button" data-legend="{key.series}" aria-pressed="true">{_sign(key)}'
        f"{text(key.label)}</button></li>"
        for key in keys
    )
    return f'<ul class="legend">{entries}</ul>'


def _sign(key: Key) -> str:
    """Return the mark of a legend's entry."""
    path = "M-8 0h16" if key.shape in ("line", "solid") else SHAPES[key.shape]
    return (
        f'<svg viewBox="-10 -10 20 20" width="18" height="18" aria-hidden="true"><path class="{key.kind} {key.shape}" '
        f'd="{path}"/></svg>'
    )


def save_figures(figures: Mapping[str, Figure], target: Path) -> list[Path]:
    """Write figures as SVG files in their light colours, for papers and slides.

    Args:
        figures: The figures by name.
        target: Directory of the files.

    Returns:
        The written files.
    """
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        written.append(target / f"{name}.svg")
        write_text(written[-1], standalone(figure))
    return written


def standalone(figure: Figure) -> str:
    """Return a figure as one SVG file: its charts below each other, then its legend.

    Args:
        figure: The figure.

    Returns:
        The SVG.
    """
    top, parts = 0, []
    for chart in figure.charts:
        place = f'x="{_LEFT}" y="{top + _TOP}" width="{_WIDTH - _LEFT - 20}" height="{chart.height}"'
        parts.append(f'<svg {place} overflow="visible">{chart.svg()}</svg>')
        top += chart.height + _TOP + _BOTTOM
        for key in chart.keys:
            parts.append(f'<svg x="{_LEFT}" y="{top}" overflow="visible">{_sign(key)}'
                         f'<text class="tick" x="26" y="13">{text(key.label)}</text></svg>')  # fmt: skip
            top += 20
    style = _light(asset("chart.css"))
    drawn = re.sub(r' data-(?:tip|points|series)="[^"]*"', "", "".join(parts))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top + 8}"><title>{text(figure.title)}'
        f"</title><style>{style}</style>{drawn}</svg>\n"
    )


def _light(style: str) -> str:
    """Return a style with the light colours in place of their names, which few programs but browsers understand."""
    light = asset("palette.css").partition("@media")[0]
    colours = dict(re.findall(r"(--[\w-]+):\s*([^;]+);", light))
    kinds = dict(re.findall(r"\.([\w-]+) \{ --c: var\((--[\w-]+)\); \}", asset("palette.css")))
    named = "".join(_of_kind(style, kind, colours[name]) for kind, name in kinds.items())
    return re.sub(r"var\((--[\w-]+)\)", lambda match: colours.get(match.group(1), "currentColor"), style) + named


def _of_kind(style: str, kind: str, colour: str) -> str:
    """Return the rules of a style that take a kind's colour, for that kind."""
    rules = re.findall(r"([^{}]+)\{([^{}]*var\(--c\)[^{}]*)\}", style)
    return "".join(
        f"{','.join(f'{each.strip()}.{kind}' for each in names.split(','))}"
        f"{{{';'.join(part for part in body.split(';') if 'var(--c)' in part).replace('var(--c)', colour)}}}"
        for names, body in rules
    )
