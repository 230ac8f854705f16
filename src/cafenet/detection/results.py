"""The table of a detection run: what each backbone costs and reaches, and what may be claimed of the differences."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from cafenet.common.statistics import PairedDifference, compare_paired, in_words
from cafenet.detection.recipe import DetectionReference
from cafenet.runs.results import count

COLUMNS = ("mAP", "ap50", "ap75", "small", "medium", "large")
HEADS = ("mAP", "AP50", "AP75", "small", "medium", "large")
_NUM_SHOWN = 3
"""Of these, in the terminal."""


@dataclass(frozen=True)
class DetectorRow:
    """One backbone under one framework."""

    backbone: str
    key: str
    framework: str
    pretraining: str
    flops: int
    """Of the backbone with its FPN, one image; one multiply-add is one."""
    params: int
    """Of the whole detector."""
    seeds: tuple[int, ...]
    scores: tuple[dict[str, float | None], ...]
    """mAP, ap50, ap75, small, medium and large, one dictionary a seed."""
    per_class: tuple[dict[str, float | None], ...]

    def shown(self, column: str) -> str:
        """31.2, or 31.2 ± 0.4 of several seeds (standard deviation), in percent; - where nothing is to be found."""
        found = [100 * value for each in self.scores if (value := each[column]) is not None]
        return spread(found)


def spread(percent: Sequence[float]) -> str:
    """A mean, with the standard deviation where there are several values."""
    if not percent:
        return "-"
    return f"{mean(percent):.1f} ± {stdev(percent):.1f}" if len(percent) > 1 else f"{percent[0]:.1f}"


def comparisons(rows: Sequence[DetectorRow]) -> list[tuple[DetectorRow, DetectorRow, PairedDifference]]:
    """The mAP of CafeNet's backbones against every other's, paired by seed."""
    own = [row for row in rows if row.backbone.startswith("CafeNet")]
    others = [row for row in rows if not row.backbone.startswith("CafeNet")]
    return [
        (row, other, compare_paired(*([float(each["mAP"] or 0.0) for each in side.scores] for side in (row, other))))
        for row in own
        for other in others
    ]


def claims(rows: Sequence[DetectorRow]) -> list[str]:
    """One sentence a comparison; a win or a loss only where the interval says so."""
    return [
        f"{first.backbone} - {second.backbone}: {in_words(difference)} of mAP"
        for first, second, difference in comparisons(rows)
    ]


def as_document(rows: Sequence[DetectorRow], references: Sequence[DetectionReference]) -> dict[str, Any]:
    """Rows, comparisons and published rows as plain values."""
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
    """The rows of a results.json."""
    rows: list[dict[str, Any]] = document["detectors"]
    return [
        DetectorRow(**{**row, **{name: tuple(row[name]) for name in ("seeds", "scores", "per_class")}}) for row in rows
    ]


def results_table(rows: Sequence[DetectorRow], references: Sequence[DetectionReference], title: str = "") -> Table:
    """For the terminal: measured rows, then published ones, marked as such; what fits into 80 columns."""
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
