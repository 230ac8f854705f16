"""The table at the end of a run: what each method costs and reaches, with the differences that may be claimed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from cafenet.common.statistics import PairedDifference, compare_paired, in_words
from cafenet.runs.recipe import Reference


@dataclass(frozen=True)
class Row:
    """One method at one budget."""

    method: str
    budget: str
    flops: int
    params: int
    latency_ms: float
    accuracies: tuple[float, ...]
    """On the test set, one a seed."""
    search_score: float | None
    widths: Mapping[str, int]
    per_attribute: tuple[float, ...] | None = None
    top5: float | None = None

    @property
    def accuracy(self) -> str:
        """62.31%, or 62.31 ± 0.20% of several seeds (standard deviation)."""
        percent = [100 * value for value in self.accuracies]
        if len(percent) == 1:
            return f"{percent[0]:.2f}%"
        return f"{mean(percent):.2f} ± {stdev(percent):.2f}%"


def as_document(rows: Sequence[Row], references: Sequence[Reference]) -> dict[str, Any]:
    """Rows, published rows and comparisons as plain values."""
    return {
        "rows": [vars(row) for row in rows],
        "comparisons": [
            {"first": first.method, "second": second.method, "budget": first.budget, **_finite(difference)}
            for first, second, difference in comparisons(rows)
        ],
        "reference": [vars(reference) for reference in references],
    }


def _finite(difference: PairedDifference) -> dict[str, Any]:
    """One pair has no interval: JSON has no infinity."""
    return {name: value if math.isfinite(value) else None for name, value in vars(difference).items()}


def comparisons(rows: Sequence[Row]) -> list[tuple[Row, Row, PairedDifference]]:
    """CafeNet's rows against every baseline of the same budget, paired by seed."""
    own = [row for row in rows if row.method.startswith("CafeNet")]
    others = [row for row in rows if not row.method.startswith("CafeNet")]
    return [
        (row, other, compare_paired(row.accuracies, other.accuracies))
        for row in own
        for other in others
        if other.budget in ("", row.budget)
    ]


def results_table(rows: Sequence[Row], references: Sequence[Reference], title: str = "") -> Table:
    """For the terminal: measured rows, then published ones, marked as such."""
    table = Table(title=title, caption="One multiply-add is one FLOP. Accuracy on the test set, after the last epoch.")
    for name in ("method", "budget", "FLOPs", "params", "latency", "accuracy"):
        table.add_column(name, justify="left" if name in ("method", "budget") else "right")
    full = next((row for row in rows if not row.budget), None)
    for row in rows:
        share = f" ({row.flops / full.flops:.0%})" if full is not None and row is not full else ""
        table.add_row(
            row.method,
            row.budget or "-",
            count(row.flops) + share,
            count(row.params),
            f"{row.latency_ms:.2f} ms",
            row.accuracy,
            end_section=row is rows[-1],
        )
    for reference in references:
        table.add_row(
            f"{reference.method} (published)",
            reference.budget or "-",
            reference.flops,
            reference.params,
            "",
            reference.accuracy,
            style="dim",
        )
    return table


def claims(rows: Sequence[Row]) -> list[str]:
    """One sentence a comparison; a win or a loss only where the interval says so."""
    return [
        f"{first.method} - {second.method} at {first.budget}: {in_words(difference)}"
        for first, second, difference in comparisons(rows)
    ]


def count(number: float) -> str:
    """1,500,000 is 1.50M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if number >= limit:
            return f"{number / limit:.2f}{unit}"
    return f"{number:.0f}"
