"""The common parts of all figures: colours, marks that the page's script understands, legends."""

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
    """Create a figure with one panel.

    Returns:
        The figure and its axes.
    """
    figure = Figure(figsize=(7, 4), layout="constrained")
    return figure, figure.subplots()


def colour(number: int) -> str:
    """Return a colour that differs from its neighbours on white and on black.

    Args:
        number: Number of the series.

    Returns:
        The colour as hexadecimal RGB.
    """
    return (OWN, OTHER, "#3f9a5c", "#7a4fb0", "#8a6d3b", "#2f9fa8", "#b04f8f")[number % 7]


def mark(artist: Artist, **marks: str | int) -> None:
    """Attach information for the page's script to an artist.

    Args:
        artist: The drawn element.
        **marks: `tip` is the text shown when pointed at, `points` names the block of data behind dots, and `series` and
            `legend` connect the entries of a legend with what they hide and show.
    """
    artist.set_gid("mark:" + quote(json.dumps(marks)))


def label_of(name: str) -> str:
    """Return a user's name as a label; matplotlib would hide a label that begins with _ and read $...$ as a formula.

    Args:
        name: The name.

    Returns:
        The escaped label.
    """
    shown = name.replace("$", r"\$")
    return "\u200b" + shown if shown.startswith("_") else shown


def legend(axes: Axes, series: Sequence[int]) -> None:
    """Add a legend whose entries hide and show series.

    Args:
        axes: The axes.
        series: Numbers of the series, in the order in which they were drawn.
    """
    drawn = axes.legend(fontsize=7)
    handles = [handle for handle in drawn.legend_handles if handle is not None]
    for number, handle, words in zip(series, handles, drawn.get_texts(), strict=True):
        mark(handle, legend=number)
        mark(words, legend=number)


def save_figures(figures: Mapping[str, Figure], target: Path, formats: Sequence[str] = ("svg", "png")) -> list[Path]:
    """Write figures as files fit for a paper.

    Args:
        figures: The figures by name.
        target: Directory of the files.
        formats: File formats.

    Returns:
        The written files.
    """
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        for each in formats:
            written.append(target / f"{name}.{each}")
            figure.savefig(written[-1], dpi=300)
    return written


def smoothed(values: Sequence[float]) -> list[float]:
    """Return a running mean over about a tenth of the values.

    Args:
        values: The values.

    Returns:
        As many smoothed values.
    """
    if not values:
        return []
    weight = max(0.0, min(0.95, 1 - 10 / len(values)))
    return list(accumulate(values, lambda mean, value: weight * mean + (1 - weight) * value))


def duration(seconds: float) -> str:
    """Return a time in words: 75 is "1 min 15 s".

    Args:
        seconds: The time.

    Returns:
        The text.
    """
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
