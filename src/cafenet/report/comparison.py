"""Several runs side by side: what differs in their recipes, what each reached, and what it took."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.table import Table
from rich.text import Text

from cafenet.common.statistics import PairedDifference, compare_paired, in_words
from cafenet.errors import RecipeError
from cafenet.report.run_page import rows_of
from cafenet.report.run_records import RunRecord, read_run
from cafenet.runs.directory import WITHOUT_EFFECT
from cafenet.runs.results import Row, count

_MOST_COLUMNS = 3


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

    @property
    def seeds(self) -> list[int]:
        """Of the final trainings, one for each accuracy."""
        return list(self.run.recipe.get("finetune", {}).get("seeds", []))

    @property
    def is_complete(self) -> bool:
        """Whether there is an accuracy for each seed; a run that is going on with more has those of before."""
        return len(self.row.accuracies) == len(self.seeds)


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
        """The key that differs, if it is the only one and a number; where the data lie does not count."""
        keys = [key for key in self.keys if key != "data.source"]
        if len(keys) != 1 or not all(_is_number(_flat(run.recipe).get(keys[0])) for run in self.runs):
            return None
        return keys[0]

    def differences(self) -> list[tuple[Line, Line, PairedDifference]]:
        """Each run's find against the first run's of the same method and budget, paired by seed."""
        found = []
        for number, line in enumerate(self.own):
            same = [each for each in self.own[:number] if _kind(each.row) == _kind(line.row)]
            if same and same[0].seeds == line.seeds and all(each.is_complete for each in (same[0], line)):
                found.append((line, same[0], compare_paired(line.row.accuracies, same[0].row.accuracies)))
        return found


def read_comparison(paths: Sequence[Path]) -> Comparison:
    """Read run directories; runs of equal names are told apart by their paths."""
    if len(paths) < 2:
        raise RecipeError(f"a comparison needs two runs at least, but got {len(paths)}; give more run directories")
    runs = [read_run(path) for path in paths]
    for run in runs:
        if run.is_detection or run.is_call:
            maker = "cafenet detect" if run.is_detection else "cafenet.search"
            raise RecipeError(f"compare is for runs of `cafenet run`, but {run.path} is one of `{maker}`")
    if len({path.resolve() for path in paths}) < len(paths):
        raise RecipeError("a comparison needs runs in different directories, but one was given twice")
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        runs = [replace(run, title=str(path)) for run, path in zip(runs, paths, strict=True)]
    return Comparison(tuple(runs))


def settings_table(comparison: Comparison) -> Table:
    """For the terminal: what differs, a line a key and a column a run."""
    table = Table(title="what differs")
    for name in ("key", *(run.name for run in comparison.runs)):
        table.add_column(name, overflow="fold")
    flat = [_flat(run.recipe) for run in comparison.runs]
    for key in comparison.keys:
        table.add_row(key, *(Text(str(each.get(key))) for each in flat))
    return table


def comparison_table(comparison: Comparison) -> Table:
    """For the terminal; keys that differ have columns of their own where they are few."""
    table = Table(caption="One multiply-add is one FLOP. Accuracy on the test set; time is the whole run's.")
    for name in ("run", *shown_keys(comparison), "method", "budget", "FLOPs", "accuracy", "time"):
        table.add_column(name, justify="right" if name in ("FLOPs", "accuracy", "time") else "left", overflow="fold")
    for line in comparison.lines:
        table.add_row(*(Text(str(cell)) for cell in cells(line, shown_keys(comparison))))
    return table


def shown_keys(comparison: Comparison) -> list[str]:
    """The differing keys, none if they would fill a terminal."""
    return comparison.keys if len(comparison.keys) <= _MOST_COLUMNS else []


def cells(line: Line, keys: Sequence[str]) -> list[Any]:
    """A line as the table shows it, with the settings of these keys."""
    row = line.row
    settings = [line.settings[key] for key in keys]
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
    facts = [(_kind(row), row.accuracies, row.flops, row.widths) for row in (first, second)]
    return not is_own and facts[0] == facts[1]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _flat(document: dict[str, Any], place: str = "") -> dict[str, Any]:
    """Keys with dots, as the flags spell them."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        where = f"{place}.{key}" if place else key
        if where in WITHOUT_EFFECT:
            continue
        found |= _flat(value, where) if isinstance(value, dict) and value else {where: value}
    return found
