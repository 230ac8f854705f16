"""The table at the end of a run: cost and accuracy of each method, and the differences that the seeds support."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from cafenet.common.statistics import PairedDifference, compare_paired, in_words
from cafenet.common.verdict_words import beside, headline, share_in_words
from cafenet.runs.recipe import Reference


@dataclass(frozen=True)
class Row:
    """One method at one budget."""

    method: str
    """Name of the method, for example "CafeNet-T" or "Uniform"."""
    budget: str
    """The budget as the user wrote it; empty for the original network."""
    flops: int
    """FLOPs of the final model; one multiply-add counts as one."""
    params: int
    """Number of parameters of the final model."""
    latency_ms: float
    """Measured latency of the final model."""
    accuracies: tuple[float, ...]
    """Accuracy on the test set, one value per seed."""
    search_score: float | None
    """Score on the validation data in the supernet, if the method searched one."""
    widths: Mapping[str, int]
    """Number of channels of each group, by name."""
    per_attribute: tuple[float, ...] | None = None
    """Accuracy of each attribute, averaged over seeds, for multi-label data."""
    top5: float | None = None
    """Top-5 accuracy, averaged over seeds, for data of more than 5 classes."""
    latency_quartiles_ms: Sequence[float] | None = None
    """Lower and upper quartile of the measured times; all rows of a run are measured in turns."""

    @property
    def latency(self) -> str:
        """Latency as text: 1.20 ms, or 1.20 ms (1.18-1.25) with the quartiles."""
        quartiles = self.latency_quartiles_ms
        return f"{self.latency_ms:.2f} ms" + (f" ({quartiles[0]:.2f}-{quartiles[1]:.2f})" if quartiles else "")

    @property
    def accuracy(self) -> str:
        """Accuracy as text: 62.31%, or 62.31 ± 0.20% for several seeds (standard deviation)."""
        percent = [100 * value for value in self.accuracies]
        if len(percent) == 1:
            return f"{percent[0]:.2f}%"
        return f"{mean(percent):.2f} ± {stdev(percent):.2f}%"


def as_document(rows: Sequence[Row], references: Sequence[Reference]) -> dict[str, Any]:
    """Return rows, published rows and comparisons as plain values.

    Args:
        rows: The measured rows.
        references: The published rows.

    Returns:
        The content of `results.json`.
    """
    return {
        "rows": [vars(row) for row in rows],
        "comparisons": [
            {"first": first.method, "second": second.method, "budget": first.budget, **_finite(difference)}
            for first, second, difference in comparisons(rows)
        ],
        "reference": [vars(reference) for reference in references],
    }


def _finite(difference: PairedDifference) -> dict[str, Any]:
    """Replace infinities by None, because one pair has no interval and JSON has no infinity."""
    return {name: value if math.isfinite(value) else None for name, value in vars(difference).items()}


def comparisons(rows: Sequence[Row]) -> list[tuple[Row, Row, PairedDifference]]:
    """Compare the rows of CafeNet with every baseline of the same budget, paired by seed.

    Args:
        rows: The measured rows.

    Returns:
        The row, the baseline, and their difference.
    """
    own = [row for row in rows if row.method.startswith("CafeNet")]
    others = [row for row in rows if not row.method.startswith("CafeNet")]
    return [
        (row, other, compare_paired(row.accuracies, other.accuracies))
        for row in own
        for other in others
        if other.budget in ("", row.budget)
    ]


def results_table(rows: Sequence[Row], references: Sequence[Reference], title: str = "") -> Table:
    """Build the table for the terminal: measured rows, then published ones, marked as such.

    Args:
        rows: The measured rows.
        references: The published rows.
        title: Title of the table.

    Returns:
        The table.
    """
    table = Table(
        title=title,
        caption="One multiply-add is one FLOP. Latency: median (quartiles), measured in turns. "
        "Accuracy on the test set, after the last epoch.",
    )
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
            row.latency,
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
    """Return what was gained: one sentence per model of CafeNet, then each comparison that several seeds support.

    Args:
        rows: The measured rows.

    Returns:
        The sentences, without full stops.
    """
    found = comparisons(rows)
    own = [row for row in rows if row.method.startswith("CafeNet")]
    sentences = [f"{row.method} at {row.budget}: {_in_a_sentence(verdict(row, rows))}" for row in own]
    return sentences + [
        f"{first.method} - {second.method} at {first.budget}: {in_words(difference)}"
        for first, second, difference in found
        if difference.num_pairs > 1
    ]


def verdict(row: Row, rows: Sequence[Row]) -> str:
    """Return what a model of CafeNet gained, in one line.

    Args:
        row: The row of the model.
        rows: All rows of its run.

    Returns:
        The line, for example "Half the FLOPs, 0.35 points below the original; no different from Uniform (1 seed)".
    """
    pairs = [(other, difference) for first, other, difference in comparisons(rows) if first is row]
    original = next((other for other, _ in pairs if not other.budget), None)
    saved = f"{count(row.flops)} FLOPs" if original is None else share_in_words(row.flops / original.flops, "FLOPs")
    if original is None:
        saved += f", {row.accuracy} accuracy"
    parts = [
        beside(difference, "the original" if other is original else other.method, is_original=other is original)
        for other, difference in sorted(pairs, key=lambda pair: bool(pair[0].budget))
    ]
    return headline(saved, parts, len(row.accuracies))


def _in_a_sentence(words: str) -> str:
    """Return a line as it stands behind a colon."""
    return words[0].lower() + words[1:]


def count(number: float) -> str:
    """Return a number in short: 1,500,000 is 1.50M.

    Args:
        number: The number.

    Returns:
        The text.
    """
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if number >= limit:
            return f"{number / limit:.2f}{unit}"
    return f"{number:.0f}"
