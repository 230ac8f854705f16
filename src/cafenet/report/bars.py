"""Horizontal bars, one per row, with the value written beside its name."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cafenet.report.html import text
from cafenet.report.plot import Key

_ROW = 32


@dataclass(frozen=True)
class Bar:
    """One bar."""

    name: str
    """Name of the row."""
    value: float
    """Length of the bar; a negative one goes to the left."""
    shown: str
    """The value in words."""
    kind: str
    """CSS class of its colour."""
    tip: str = ""
    """Text that the tip shows."""


@dataclass(frozen=True)
class Bars:
    """Rows of bars with a common scale."""

    bars: Sequence[Bar]
    """The bars."""
    keys: list[Key] = field(default_factory=list)
    """Bars need no legend that hides and shows."""

    @property
    def height(self) -> int:
        """Height in pixels."""
        return _ROW * len(self.bars)

    def svg(self) -> str:
        """Draw the bars.

        Returns:
            The SVG element.
        """
        low, high = min(0.0, *(bar.value for bar in self.bars)), max(0.0, *(bar.value for bar in self.bars))
        reach = (high - low) or 1.0
        rows = "".join(self._row(number, bar, low, reach) for number, bar in enumerate(self.bars))
        return f'<svg class="rows" width="100%" height="{self.height}">{rows}</svg>'

    def _row(self, number: int, bar: Bar, low: float, reach: float) -> str:
        """Return one row."""
        top = _ROW * number
        start, end = sorted((100 * (0 - low) / reach, 100 * (bar.value - low) / reach))
        tip = text(bar.tip or f"{bar.name}: {bar.shown}")
        return (
            f'<text class="name" x="0" y="{top + 12}">{text(bar.name)}</text>'
            f'<text class="kept" x="100%" y="{top + 12}" text-anchor="end">{text(bar.shown)}</text>'
            f'<rect class="mark bar {bar.kind}" x="{start:.2f}%" width="{end - start:.2f}%" y="{top + 18}" height="7" '
            f'rx="2" data-tip="{tip}"/>'
        )
