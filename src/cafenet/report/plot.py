"""Charts as SVG of fluid width: places across are percents, so that text and marks keep their size on any screen.

A chart is drawn once and fits a phone and a wide screen. Colours are CSS classes (see `kinds.py`), so that it follows
light and dark mode. Marks with a `tip` answer to the pointer and to the keyboard (`assets/page.js`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cafenet.report.html import text
from cafenet.report.scales import Scale, apart

SHAPES = {
    "dot": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0Z",
    "ring": "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0Z",
    "square": "M-4.5-4.5h9v9h-9Z",
    "triangle": "M0-5.5 5.5 4.5h-11Z",
    "star": "M0-9 2.3-2.8 8.6-2.8 3.6 1.1 5.3 7.3 0 3.7-5.3 7.3-3.6 1.1-8.6-2.8-2.3-2.8Z",
}
"""Outlines of the marks, around 0."""
_GAP = 15.0
"""Smallest distance of two labels, in pixels."""
_FINE = 1000


@dataclass(frozen=True)
class Key:
    """One entry of a legend, which hides and shows its series."""

    label: str
    """The text."""
    kind: str
    """CSS class of its colour."""
    series: int
    """Number of the series."""
    shape: str = "dot"
    """Mark before the text: a name of `SHAPES`, "line" or "solid"."""


@dataclass
class Chart:
    """A chart under construction: draw into it, then ask for `svg()`."""

    across: Scale
    """The horizontal axis."""
    up: Scale
    """The vertical axis."""
    across_title: str
    """Title below the horizontal axis."""
    up_title: str
    """Title above the vertical axis."""
    height: int = 260
    """Height of the plotting area in pixels."""
    across_texts: dict[float, str] | None = None
    """Ticks of the horizontal axis with their texts, if they are no plain numbers."""
    keys: list[Key] = field(default_factory=list)
    """Entries of the legend."""
    _parts: list[str] = field(default_factory=list)
    _labels: list[tuple[float, float, str, str, int | None, float]] = field(default_factory=list)

    def place(self, across: float) -> str:
        """Return a horizontal place in percent.

        Args:
            across: The value.

        Returns:
            The place, as SVG reads it.
        """
        return f"{100 * self.across.share(across):.2f}%"

    def level(self, up: float) -> float:
        """Return a vertical place in pixels.

        Args:
            up: The value.

        Returns:
            The place.
        """
        return round(self.height * (1 - self.up.share(up)), 1)

    def point(
        self, across: float, up: float, kind: str, shape: str, *, tip: str, series: int | None = None, shift: float = 0
    ) -> None:
        """Draw one mark.

        Args:
            across: Value on the horizontal axis.
            up: Value on the vertical axis.
            kind: CSS class of its colour.
            shape: A name of `SHAPES`.
            tip: Text of its tip.
            series: Number of its series.
            shift: Pixels by which it is moved to the right, so that others at its place are seen.
        """
        mark = f'<path class="mark {kind} {shape}" d="{SHAPES[shape]}"{_moved(shift)} data-tip="{text(tip)}"/>'
        self._parts.append(f'<svg x="{self.place(across)}" y="{self.level(up)}"{_of(series)}>{mark}</svg>')

    def dots(self, points: Sequence[tuple[float, float]], kind: str, block: str, *, series: int) -> None:
        """Draw many dots whose tips the page's script makes from a block of data.

        Args:
            points: Values on both axes.
            kind: CSS class of their colour.
            block: Name of the block of data.
            series: Number of their series.
        """
        drawn = "".join(f'<circle cx="{self.place(x)}" cy="{self.level(y)}" r="3"/>' for x, y in points)
        self._parts.append(f'<g class="dots {kind}" data-points="{text(block)}"{_of(series)}>{drawn}</g>')

    def cloud(self, points: Sequence[tuple[float, float]], kind: str, *, series: int) -> None:
        """Draw very many small dots without tips, as one path.

        Args:
            points: Values on both axes.
            kind: CSS class of their colour.
            series: Number of their series.
        """
        path = "".join(f"M{self._fine(x)} {self.level(y)}h0" for x, y in points)
        self._parts.append(self._stretched(f'<path class="cloud {kind}" d="{path}"{_of(series)}/>'))

    def line(self, points: Sequence[tuple[float, float]], kind: str, *, series: int, style: str = "line") -> None:
        """Draw a line.

        Args:
            points: Values on both axes.
            kind: CSS class of its colour.
            series: Number of its series.
            style: CSS class of the stroke: "line" (dashed in a way of its kind), "solid", "thin" or "dashed".
        """
        path = " ".join(f"{self._fine(x)},{self.level(y)}" for x, y in points)
        self._parts.append(self._stretched(f'<polyline class="{style} {kind}" points="{path}"{_of(series)}/>'))

    def column(self, low: float, high: float, up: float, kind: str, *, tip: str, series: int | None = None) -> None:
        """Draw a bar that stands on the horizontal axis.

        Args:
            low: Its left end.
            high: Its right end.
            up: Its value.
            kind: CSS class of its colour.
            tip: Text of its tip.
            series: Number of its series.
        """
        width = 100 * (self.across.share(high) - self.across.share(low))
        top = self.level(up)
        self._parts.append(
            f'<rect class="mark bar {kind}" x="{self.place(low)}" width="{width:.2f}%" y="{top}" '
            f'height="{round(self.height - top, 1)}" data-tip="{text(tip)}"{_of(series)}/>'
        )

    def error(
        self, across: float, low: float, high: float, kind: str, *, series: int | None = None, shift: float = 0
    ) -> None:
        """Draw an error bar.

        Args:
            across: Value on the horizontal axis.
            low: Its lower end.
            high: Its upper end.
            kind: CSS class of its colour.
            series: Number of its series.
            shift: Pixels by which it is moved to the right.
        """
        self._parts.append(
            f'<line class="error {kind}"{_moved(shift)} x1="{self.place(across)}" x2="{self.place(across)}" '
            f'y1="{self.level(low)}" y2="{self.level(high)}"{_of(series)}/>'
        )

    def label(
        self, across: float, up: float, words: str, kind: str, *, series: int | None = None, shift: float = 0
    ) -> None:
        """Write a label beside a mark; labels that would cover each other are moved apart.

        Args:
            across: Value on the horizontal axis.
            up: Value on the vertical axis.
            words: The label.
            kind: CSS class of its colour.
            series: Number of its series.
            shift: Pixels by which it is farther from the place than beside a mark.
        """
        self._labels.append((across, up, words, kind, series, shift))

    def svg(self) -> str:
        """Return the chart.

        Returns:
            The SVG element, which is as wide as its place allows.
        """
        inside = "".join((*self._axes(), *self._parts, *self._placed_labels()))
        return f'<svg class="plot" width="100%" height="{self.height}">{inside}</svg>'

    def _axes(self) -> list[str]:
        """Return grid lines, ticks and titles."""
        drawn = [f'<text class="title" x="0" dx="-46" y="-12">{text(self.up_title)}</text>']
        for tick in self.up.ticks:
            y = self.level(tick)
            drawn.append(f'<line class="grid" x2="100%" y1="{y}" y2="{y}"/>')
            drawn.append(f'<text class="tick" x="0" dx="-8" y="{y}" dy=".35em" text-anchor="end">'
                         f"{text(self.up.text(tick))}</text>")  # fmt: skip
        texts = self.across_texts or {tick: self.across.text(tick) for tick in self.across.ticks}
        for tick, words in texts.items():
            drawn.append(f'<text class="tick" x="{self.place(tick)}" y="{self.height + 18}" text-anchor="middle">'
                         f"{text(words)}</text>")  # fmt: skip
        drawn.append(f'<line class="axis" x2="100%" y1="{self.height}" y2="{self.height}"/>')
        drawn.append(f'<text class="title" x="100%" y="{self.height + 36}" text-anchor="end">'
                     f"{text(self.across_title)}</text>")  # fmt: skip
        return drawn

    def _placed_labels(self) -> list[str]:
        """Return the labels, those of each side of the chart apart from each other."""
        drawn = []
        for is_left in (False, True):
            side = [each for each in self._labels if (self.across.share(each[0]) > 0.6) == is_left]
            levels = apart([self.level(each[1]) for each in side], _GAP, 4, self.height - 6)
            for (across, _, words, kind, series, shift), level in zip(side, levels, strict=True):
                anchor = f'dx="{(-1 if is_left else 1) * (shift + 12):g}" text-anchor="{"end" if is_left else "start"}"'
                drawn.append(
                    f'<text class="label {kind}" x="{self.place(across)}" y="{level:.1f}" dy=".35em" {anchor}'
                    f"{_of(series)}>{text(words)}</text>"
                )
        return drawn

    def _fine(self, across: float) -> str:
        """Return a horizontal place in the units of a stretched part."""
        return f"{_FINE * self.across.share(across):.1f}"

    def _stretched(self, inside: str) -> str:
        """Return a part that is stretched to the width of the chart; strokes keep their width."""
        box = f'viewBox="0 0 {_FINE} {self.height}" preserveAspectRatio="none"'
        return f'<svg class="stretched" width="100%" height="{self.height}" {box}>{inside}</svg>'


def _moved(shift: float) -> str:
    """Return the attribute that moves a mark to the right."""
    return f' transform="translate({shift:g} 0)"' if shift else ""


def _of(series: int | None) -> str:
    """Return the attribute that names a series."""
    return "" if series is None else f' data-series="{series}"'


@dataclass(frozen=True)
class Figure:
    """Charts with a heading and a caption."""

    title: str
    """The heading."""
    caption: str
    """One or two sentences below it."""
    charts: tuple[Any, ...]
    """The charts: each has `svg()`, `height` and `keys`."""
    is_detail: bool = False
    """True if it is folded under "Details"."""
