"""Draw the pictures of docs/method.md: bins, the locally free zone, min-min and max-max.

python tools/docs/method_figures.py
"""

from itertools import pairwise
from pathlib import Path

import matplotlib
import torch
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

import cafenet
from cafenet.space.bins import flops_sensitive_bins
from cafenet.supernet.sharing import assigned_bins, offset_sets

TARGET = Path(__file__).resolve().parents[2] / "docs" / "images"

INK, PALE, LINE = "#23303b", "#eef1f4", "#8a97a3"
BASE, FREE, BEST = "#4c78a8", "#f28e2b", "#59a14f"


def main() -> None:
    matplotlib.rcParams.update({"svg.hashsalt": "cafenet", "font.size": 10, "text.color": INK})
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, draw in {"bins": draw_bins, "zone": draw_zone, "flow": draw_flow}.items():
        figure = draw()
        figure.savefig(TARGET / f"{name}.svg", metadata={"Date": None}, facecolor="white", bbox_inches="tight")
        pyplot.close(figure)
        print(TARGET / f"{name}.svg")


def draw_bins() -> Figure:
    """The groups of the demo's network, a cell a channel, neighbouring bins in alternating tones."""
    space = cafenet.trace(cafenet.load_model("cafenet:plain_cnn"), torch.zeros(1, 1, 28, 28))
    bins = flops_sensitive_bins(space, beta=2.0)
    figure, axes = _canvas(9, 3.2, (-25, 66), (-0.9, len(space.groups) + 0.2))
    for row, (group, each) in enumerate(zip(reversed(space.groups), reversed(bins.groups), strict=True)):
        axes.text(-1.5, row + 0.3, f"{group.sensitivity:,.0f} FLOPs a channel", ha="right", va="center")
        edges = [0, *range(each.first, each.channels + 1, each.size)]
        for number, (start, stop) in enumerate(pairwise(edges)):
            tone = BASE if number % 2 == 0 else "#9fbcd9"
            axes.add_patch(Rectangle((start, row), stop - start, 0.6, facecolor=tone, edgecolor="white", linewidth=0.8))
        unit = "channel" if each.size == 1 else "channels"
        text = f"{each.num_bins} bins of {each.size} {unit}"
        axes.text(each.channels + 1, row + 0.3, text, ha="left", va="center", fontsize=9)
    axes.text(0, -0.6, "one cell is one bin; the first takes what the division leaves", fontsize=9, color=LINE)
    return figure


def draw_zone() -> Figure:
    """Width 5 of 8 bins: the fixed sharing, and the three assignments of r = 1."""
    bin_count, num_bins = 5, 8
    rows = [("fixed sharing (r = 0)", assigned_bins(bin_count, num_bins, 0, offset_sets(0)[0]), bin_count - 1)]
    for number, offsets in enumerate(offset_sets(1), start=1):
        bin_counts = assigned_bins(bin_count, num_bins, 1, offsets)
        rows.append((f"r = 1, assignment {number}", bin_counts, bin_count - 2))
    figure, axes = _canvas(8, 3.2, (-3.2, 10.6), (-0.3, 5.1))
    for number in range(1, num_bins + 1):
        axes.text(number - 0.5, 4.65, str(number), ha="center", va="center", color=LINE)
    axes.text(-0.2, 4.65, "bin", ha="right", va="center", color=LINE)
    for row, (title, bin_counts, num_base) in enumerate(rows):
        y = 3.6 - row - (0.2 if row else 0)
        axes.text(-0.2, y + 0.3, title, ha="right", va="center")
        for number in range(1, num_bins + 1):
            kind = PALE if number not in bin_counts else BASE if number <= num_base or row == 0 else FREE
            axes.add_patch(Rectangle((number - 0.95, y), 0.9, 0.6, facecolor=kind, edgecolor="none"))
    axes.add_patch(Rectangle((3, 0.28), 3, 2.95, fill=False, edgecolor=INK, linestyle="--", linewidth=1.2))
    axes.text(4.5, -0.05, "zone: bins c - r to c + r", ha="center", va="center", fontsize=9)
    for y, (color, text) in zip((2.9, 2.2, 1.5), ((BASE, "base"), (FREE, "free"), (PALE, "left out")), strict=True):
        axes.add_patch(Rectangle((8.5, y), 0.5, 0.4, facecolor=color, edgecolor="none"))
        axes.text(9.15, y + 0.2, text, va="center", fontsize=9)
    return figure


def draw_flow() -> Figure:
    """One training step on the left, one search on the right."""
    figure, axes = _canvas(10, 4.6, (0, 20), (0, 9.2))
    _column(
        axes,
        0.3,
        "Training: min-min",
        ("sample a width vector", "smallest loss wins", "one backward pass through it"),
        ("loss 1.31", "loss 1.24", "loss 1.40"),
        "forward passes without gradients",
    )
    _column(
        axes,
        10.5,
        "Search: max-max",
        (
            "propose widths within the budget",
            "a width's score is its best candidate's",
            "the scores decide the width: trend, evolution, ...",
        ),
        ("70.1%", "71.4%", "69.8%"),
        "batch norm recalibrated for each",
    )
    axes.plot([10, 10], [0.4, 8.4], color=LINE, linewidth=0.8)
    return figure


def _column(
    axes: Axes, left: float, title: str, steps: tuple[str, str, str], values: tuple[str, ...], note: str
) -> None:
    top, choice, end = steps
    middle = left + 4.6
    axes.text(middle, 8.8, title, ha="center", va="center", fontsize=12, fontweight="bold")
    _box(axes, left + 0.6, 7.0, 8.0, top, PALE)
    for number, value in enumerate(values):
        x = left + 0.1 + 3.1 * number
        color = BEST if number == 1 else "white"
        _box(axes, x, 4.1, 2.8, f"candidate {number + 1}\n{value}", color, height=1.4)
        _arrow(axes, (middle, 7.0), (x + 1.4, 5.5))
        _arrow(axes, (x + 1.4, 4.1), (middle, 3.2))
    axes.text(middle, 6.25, note, ha="center", va="center", fontsize=9, color=INK, bbox={"fc": "white", "ec": "none"})
    _box(axes, left + 0.6, 2.2, 8.0, choice, PALE)
    _arrow(axes, (middle, 2.2), (middle, 1.5))
    _box(axes, left + 0.6, 0.5, 8.0, end, "#dcebd8")


def _box(axes: Axes, x: float, y: float, width: float, text: str, color: str, height: float = 1.0) -> None:
    style = "round,pad=0,rounding_size=0.15"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=color, edgecolor=LINE))
    ink = "white" if color == BEST else INK
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", color=ink, fontsize=9.5)


def _arrow(axes: Axes, start: tuple[float, float], stop: tuple[float, float]) -> None:
    axes.add_patch(FancyArrowPatch(start, stop, arrowstyle="-|>", mutation_scale=9, color=LINE, shrinkA=1, shrinkB=1))


def _canvas(width: float, height: float, across: tuple[float, float], up: tuple[float, float]) -> tuple[Figure, Axes]:
    figure, axes = pyplot.subplots(figsize=(width, height))
    axes.set_xlim(*across)
    axes.set_ylim(*up)
    axes.axis("off")
    return figure, axes


if __name__ == "__main__":
    main()
