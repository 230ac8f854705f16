"""What all figures share: colours, marks that the page's script understands, legends, dots."""

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from urllib.parse import quote

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

OWN, OTHER, PALE, PICK = "#2a78c2", "#c2702a", "#9aa7b4", "#c22a4e"


def single() -> tuple[Figure, Axes]:
    """A figure of one panel."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    return figure, figure.subplots()


def colour(number: int) -> str:
    """A colour that stays apart from its neighbours on white and on black."""
    return (OWN, OTHER, "#3f9a5c", "#7a4fb0", "#8a6d3b", "#2f9fa8", "#b04f8f")[number % 7]


def mark(artist: Artist, **marks: str | int) -> None:
    """Say something to the page's script: `tip` is shown when pointed at, `points` names the block of data behind the
    dots, `series` and `legend` go together."""
    artist.set_gid("mark:" + quote(json.dumps(marks)))


def label_of(name: str) -> str:
    """A user's name as a label: matplotlib would hide one that begins with _ and read $...$ as a formula."""
    shown = name.replace("$", r"\$")
    return "\u200b" + shown if shown.startswith("_") else shown


def legend(axes: Axes, series: Sequence[int]) -> None:
    """A legend whose entries hide and show the series of these numbers, in the order they were drawn."""
    drawn = axes.legend(fontsize=7)
    handles = [handle for handle in drawn.legend_handles if handle is not None]
    for number, handle, words in zip(series, handles, drawn.get_texts(), strict=True):
        mark(handle, legend=number)
        mark(words, legend=number)


def save_figures(figures: Mapping[str, Figure], target: Path, formats: Sequence[str] = ("svg", "png")) -> list[Path]:
    """Write figures, by their names, as files fit for a paper."""
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        for each in formats:
            written.append(target / f"{name}.{each}")
            figure.savefig(written[-1], dpi=300)
    return written


def smoothed(values: Sequence[float]) -> list[float]:
    """A running mean over about a tenth of the values."""
    if not values:
        return []
    weight = max(0.0, min(0.95, 1 - 10 / len(values)))
    return list(accumulate(values, lambda mean, value: weight * mean + (1 - weight) * value))


def duration(seconds: float) -> str:
    """75 is 1 min 15 s."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
