"""Several runs side by side: what differs in their recipes, what each reached, and what it took."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from cafenet.errors import RecipeError
from cafenet.pairing import PairedDifference, compare_paired, in_words
from cafenet.report.page import rows_of
from cafenet.report.records import RunRecord, read_run
from cafenet.runs.results import Row, count

_WITHOUT_EFFECT = ("description", "reference")


@dataclass(frozen=True)
class Line:
    """One row of one run's table."""

    run: RunRecord
    row: Row
    settings: dict[str, Any]

    @property
    def label(self) -> str:
        """The run and the row."""
        return f"{self.run.name}: {self.row.method} {self.row.budget}".strip()


@dataclass(frozen=True)
class Comparison:
    """Runs with distinct names."""

    runs: tuple[RunRecord, ...]

    @cached_property
    def keys(self) -> list[str]:
        """The recipe's keys that are not the same in all runs, in the recipe's order."""
        flat = [_flat(run.recipe) for run in self.runs]
        keys = {key: None for each in flat for key in each}
        return [key for key in keys if len({repr(each.get(key)) for each in flat}) > 1]

    @cached_property
    def lines(self) -> list[Line]:
        """The rows of all runs; rows that are no search's are shown once where they are the same in all runs."""
        found: list[Line] = []
        for run in self.runs:
            flat = _flat(run.recipe)
            settings = {key: flat.get(key) for key in self.keys}
            for row in rows_of(run):
                known = [line for line in found if _is_same(line.row, row)]
                if not known:
                    found.append(Line(run, row, settings))
        return found

    @property
    def own(self) -> list[Line]:
        """What CafeNet found, run by run."""
        return [line for line in self.lines if line.row.method.startswith("CafeNet")]

    def swept(self) -> str | None:
        """The one numeric key that differs, beside names of files and directories; None where there is no such key."""
        numeric = [key for key in self.keys if all(_is_number(_flat(run.recipe).get(key)) for run in self.runs)]
        return numeric[0] if len(numeric) == 1 else None

    def differences(self) -> list[tuple[Line, Line, PairedDifference]]:
        """Each run's find against the first run's of the same method and budget, paired by seed."""
        found = []
        for number, line in enumerate(self.own):
            same = [each for each in self.own[:number] if _kind(each.row) == _kind(line.row)]
            if same and len(same[0].row.accuracies) == len(line.row.accuracies):
                found.append((line, same[0], compare_paired(line.row.accuracies, same[0].row.accuracies)))
        return found


def read_comparison(paths: Sequence[Path]) -> Comparison:
    """Read run directories; runs of equal names are told apart by their paths."""
    if len(paths) < 2:
        raise RecipeError(f"a comparison needs two runs at least, but got {len(paths)}; give more run directories")
    runs = [read_run(path) for path in paths]
    for run in runs:
        if run.is_detection:
            raise RecipeError(f"compare is for runs of `cafenet run`, but {run.path} is one of `cafenet detect`")
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        runs = [replace(run, title=str(path)) for run, path in zip(runs, paths, strict=True)]
    return Comparison(tuple(runs))


def comparison_table(comparison: Comparison) -> Table:
    """For the terminal."""
    table = Table(caption="One multiply-add is one FLOP. Accuracy on the test set; time is the whole run's.")
    for name in ("run", *comparison.keys, "method", "budget", "FLOPs", "accuracy", "time"):
        table.add_column(name, justify="right" if name in ("FLOPs", "accuracy", "time") else "left", overflow="fold")
    for line in comparison.lines:
        table.add_row(*map(str, cells(comparison, line)))
    return table


def cells(comparison: Comparison, line: Line) -> list[Any]:
    """A line as the table shows it."""
    row = line.row
    settings = [line.settings[key] for key in comparison.keys]
    minutes = f"{total_seconds(line.run) / 60:.1f} min"
    return [line.run.name, *settings, row.method, row.budget or "-", count(row.flops), row.accuracy, minutes]


def sentences(comparison: Comparison) -> list[str]:
    """The differences in words; a win or a loss only where the interval says so."""
    return [
        f"{line.label} - {first.label}: {in_words(difference)}" for line, first, difference in comparison.differences()
    ]


def total_seconds(run: RunRecord) -> float:
    """The time of a run, all starts and steps together."""
    return float(sum((run.manifest.get("seconds") or {}).values()))


def spread(row: Row) -> tuple[float, float]:
    """Mean accuracy in percent and its standard deviation (0 of one seed)."""
    percent = [100 * value for value in row.accuracies]
    return mean(percent), stdev(percent) if len(percent) > 1 else 0.0


def _kind(row: Row) -> tuple[str, str]:
    return row.method, row.budget


def _is_same(first: Row, second: Row) -> bool:
    """Whether two rows are one and the same training, told twice: a baseline's in runs that share it."""
    is_own = first.method.startswith("CafeNet")
    return not is_own and _kind(first) == _kind(second) and first.accuracies == second.accuracies


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _flat(document: dict[str, Any], place: str = "") -> dict[str, Any]:
    """Keys with dots, as the flags spell them."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        where = f"{place}.{key}" if place else key
        if where in _WITHOUT_EFFECT:
            continue
        found |= _flat(value, where) if isinstance(value, dict) and value else {where: value}
    return found
