"""The table of a detection run: cost and precision of each backbone, and the differences that the seeds support."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from cafenet.common.statistics import PairedDifference, compare_paired, in_words
from cafenet.common.verdict_words import beside, headline, share_in_words
from cafenet.detection.recipe import DetectionReference
from cafenet.runs.results import count

COLUMNS = ("mAP", "ap50", "ap75", "small", "medium", "large")
"""Keys of the average precisions."""
_NOTHING = 0.005
"""Mean average precision, as a share, below which a detector has found nothing."""
HEADS = ("mAP", "AP50", "AP75", "small", "medium", "large")
"""Titles of the columns, in the same order."""
_NUM_SHOWN = 3
"""Number of columns that the terminal shows."""


@dataclass(frozen=True)
class DetectorRow:
    """One backbone under one framework."""

    backbone: str
    """Name of the backbone."""
    key: str
    """Name of its directory."""
    framework: str
    """Kind of the detector."""
    pretraining: str
    """Description of the pretraining."""
    flops: int
    """FLOPs of backbone and FPN for one image; one multiply-add counts as one."""
    params: int
    """Number of parameters of the whole detector."""
    seeds: tuple[int, ...]
    """Seeds of the trainings."""
    scores: tuple[dict[str, float | None], ...]
    """mAP, ap50, ap75, small, medium and large, one dictionary per seed."""
    per_class: tuple[dict[str, float | None], ...]
    """Average precision by class, one dictionary per seed."""

    def shown(self, column: str) -> str:
        """Return a column as text, in percent.

        Args:
            column: One of `COLUMNS`.

        Returns:
            31.2, or 31.2 ± 0.4 for several seeds (standard deviation), or - if there is nothing to find.
        """
        found = [100 * value for each in self.scores if (value := each[column]) is not None]
        return spread(found)


def spread(percent: Sequence[float]) -> str:
    """Return a mean as text, with the standard deviation of several values.

    Args:
        percent: The values.

    Returns:
        The text, - without values.
    """
    if not percent:
        return "-"
    return f"{mean(percent):.1f} ± {stdev(percent):.1f}" if len(percent) > 1 else f"{percent[0]:.1f}"


def comparisons(rows: Sequence[DetectorRow]) -> list[tuple[DetectorRow, DetectorRow, PairedDifference]]:
    """Compare the mAP of CafeNet's backbones with that of every other, paired by seed.

    Args:
        rows: The backbones.

    Returns:
        The row, the other row, and their difference.
    """
    own = [row for row in rows if row.backbone.startswith("CafeNet")]
    others = [row for row in rows if not row.backbone.startswith("CafeNet")]
    return [
        (row, other, compare_paired(*([float(each["mAP"] or 0.0) for each in side.scores] for side in (row, other))))
        for row in own
        for other in others
    ]


def claims(rows: Sequence[DetectorRow]) -> list[str]:
    """Return one sentence per comparison; it names a win or a loss only if the interval supports it.

    Args:
        rows: The backbones.

    Returns:
        The sentences.
    """
    return [
        f"{first.backbone} - {second.backbone}: {in_words(difference)} of mAP"
        for first, second, difference in comparisons(rows)
    ]


def headline_of(row: DetectorRow, rows: Sequence[DetectorRow]) -> str:
    """Return what a backbone of CafeNet gained, in one line.

    Args:
        row: The backbone.
        rows: All backbones of its run.

    Returns:
        The line, for example "Half the FLOPs, 31.2% mAP, 0.40 points below the original (1 seed)". If no backbone
        reaches 0.5% mAP, it says that nothing can be concluded.
    """
    if all(score["mAP"] is None or score["mAP"] < _NOTHING for each in rows for score in each.scores):
        return "Nothing can be concluded: no detector found anything yet; train longer (--train.epochs)"
    original = next((each for each in rows if each.backbone.startswith("Original")), None)
    saved = f"{count(row.flops)} FLOPs" if original is None else share_in_words(row.flops / original.flops, "FLOPs")
    parts = [
        beside(difference, "the original" if other is original else other.backbone, is_original=other is original)
        for first, other, difference in comparisons(rows)
        if first is row
    ]
    return headline(f"{saved}, {row.shown('mAP')}% mAP", parts, len(row.seeds))


def as_document(rows: Sequence[DetectorRow], references: Sequence[DetectionReference]) -> dict[str, Any]:
    """Return rows, comparisons and published rows as plain values.

    Args:
        rows: The backbones.
        references: The published rows.

    Returns:
        The content of `results.json`.
    """
    return {
        "format": "cafenet-detection",
        "format_version": 1,
        "detectors": [asdict(row) for row in rows],
        "comparisons": [
            {
                "first": first.backbone,
                "second": second.backbone,
                **{name: value if math.isfinite(value) else None for name, value in vars(difference).items()},
            }
            for first, second, difference in comparisons(rows)
        ],
        "reference": [asdict(reference) for reference in references],
    }


def from_document(document: dict[str, Any]) -> list[DetectorRow]:
    """Return the rows of a `results.json`.

    Args:
        document: Its content.

    Returns:
        The rows.
    """
    rows: list[dict[str, Any]] = document["detectors"]
    return [
        DetectorRow(**{**row, **{name: tuple(row[name]) for name in ("seeds", "scores", "per_class")}}) for row in rows
    ]


def results_table(rows: Sequence[DetectorRow], references: Sequence[DetectionReference], title: str = "") -> Table:
    """Build the table for a terminal of 80 columns: measured rows, then published ones, marked as such.

    Args:
        rows: The backbones.
        references: The published rows.
        title: Title of the table.

    Returns:
        The table.
    """
    table = Table(
        title=title,
        caption="Average precision in %, after the last epoch; sizes and classes are in the report. FLOPs (one "
        "multiply-add is one) of backbone and FPN.",
    )
    for name in ("backbone", "FLOPs", "params", *HEADS[:_NUM_SHOWN]):
        table.add_column(name, justify="left" if name == "backbone" else "right", no_wrap=True)
    for row in rows:
        scores = [row.shown(column) for column in COLUMNS[:_NUM_SHOWN]]
        table.add_row(row.backbone, count(row.flops), count(row.params), *scores, end_section=row is rows[-1])
    for each in references:
        table.add_row(f"{each.backbone} (published)", "", "", each.mAP, style="dim")
    return table
