"""Draws docs/images/peers.svg, the README's chart, from benchmarks/peers/results.json.

    python -m tools.docs.peers_figure

A dot is CafeNet's accuracy minus another tool's within the same FLOPs, over all networks and seeds, with its paired 95%
interval: fine-tuned, from scratch, and from scratch five times as long.
"""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.common.places import ROOT, kept_results
from benchmarks.common.results_file import Results
from benchmarks.peers.lengthened_page import long_difference
from benchmarks.peers.page import difference_from
from benchmarks.peers.tasks import PERCENTS
from cafenet.common.statistics import PairedDifference

FIGURE = ROOT / "docs" / "images" / "peers.svg"
ROWS = {
    "Uniform": ("Uniform", "Uniform in bins"),
    "FastNAS": ("ModelOpt FastNAS", "ModelOpt FastNAS"),
    "Torch-Pruning,\nsparse training": (None, "Torch-Pruning, sparse training"),
    "Random": (None, "Random"),
}
"""Label of a row, its name among the long trainings and among the short ones."""
INK, AXIS = "#333333", "#999999"
SERIES = {
    "fine-tuned, 5 epochs": ("#0072b2", "o"),
    "from scratch, 20 epochs": ("#e69f00", "s"),
    "from scratch, five times as long": ("#009e73", "D"),
}
"""Colours that people who are colour-blind can tell apart (Okabe and Ito), and marks."""


def draw(results: Results, path: Path) -> None:
    """Draw the chart.

    Args:
        results: Results of the peers' benchmark.
        path: The SVG file to write.
    """
    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    panels = figure.subplots(1, len(PERCENTS), sharex=True, sharey=True)
    for axes, percent in zip(panels, PERCENTS, strict=True):
        _panel(axes, results, percent)
    panels[0].set_yticks(range(len(ROWS)), list(ROWS))
    panels[0].invert_yaxis()
    handles = [Line2D([], [], color=colour, marker=mark, label=label) for label, (colour, mark) in SERIES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(SERIES), frameon=False, labelcolor=INK)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _panel(axes: Axes, results: Results, percent: int) -> None:
    axes.set_title(f"{percent}% of FLOPs", loc="left", color=INK, fontsize=11)
    axes.axvline(0, color=AXIS, linewidth=0.8)
    for place, (long_name, short_name) in enumerate(ROWS.values()):
        found = (
            difference_from(results, short_name, percent, "finetuned"),
            difference_from(results, short_name, percent, "scratch"),
            long_difference(results, long_name, percent) if long_name else None,
        )
        for number, (difference, style) in enumerate(zip(found, SERIES.values(), strict=True)):
            if difference is not None and difference.num_pairs > 1:
                _dot(axes, difference, place + 0.22 * (number - 1), style)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(AXIS)
    axes.tick_params(colors=INK, length=0)
    axes.set_xlabel("points of accuracy, CafeNet minus it", color=INK)


def _dot(axes: Axes, difference: PairedDifference, height: float, style: tuple[str, str]) -> None:
    colour, mark = style
    axes.plot([difference.low, difference.high], [height, height], color=colour, linewidth=1.6)
    axes.plot(difference.mean, height, mark, color=colour, markersize=5, linestyle="none")


if __name__ == "__main__":
    draw(Results(kept_results("peers"), any_version=True), FIGURE)
