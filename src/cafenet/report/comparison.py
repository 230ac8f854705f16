"""Several runs side by side: the differences of their recipes, their accuracies, and their times."""

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
from cafenet.report.models import rows_of
from cafenet.report.run_records import RunRecord, read_run
from cafenet.runs.directory import WITHOUT_EFFECT
from cafenet.runs.results import Row, count

_MOST_COLUMNS = 3


@dataclass(frozen=True)
class Line:
    """One row of one run's table."""

    run: RunRecord
    """The run."""
    row: Row
    """The row of its table."""
    settings: dict[str, Any]
    """Values of the recipe keys that differ between the runs."""

    @property
    def label(self) -> str:
        """The run and the row in words."""
        return f"{self.run.name}: {self.row.method} {self.row.budget}".strip()

    @property
    def seeds(self) -> list[int]:
        """Seeds of the final trainings, one for each accuracy."""
        return list(self.run.recipe.get("finetune", {}).get("seeds", []))

    @property
    def is_complete(self) -> bool:
        """True if there is an accuracy for each seed; a run that continues with more seeds has only the
        earlier ones."""
        return len(self.row.accuracies) == len(self.seeds)


@dataclass(frozen=True)
class Comparison:
    """Several runs with distinct names."""

    runs: tuple[RunRecord, ...]
    """The runs, in the order in which they were given."""

    @cached_property
    def keys(self) -> list[str]:
        """Recipe keys whose values differ between the runs, in the order of the recipe."""
        flat = [_flat(run.recipe) for run in self.runs]
        keys = {key: None for each in flat for key in each}
        return [key for key in keys if len({repr(each.get(key)) for each in flat}) > 1]

    def values(self) -> dict[str, list[Any]]:
        """Return what differs.

        Returns:
            The values of each differing key, one per run.
        """
        flat = [_flat(run.recipe) for run in self.runs]
        return {key: [each.get(key) for each in flat] for key in self.keys}

    @cached_property
    def lines(self) -> list[Line]:
        """The rows of all runs; a baseline that is the same in several runs is shown once."""
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
        """The rows that CafeNet found, run by run."""
        return [line for line in self.lines if line.row.method.startswith("CafeNet")]

    def swept(self) -> str | None:
        """Return the key that was varied, if only one key differs and its values are numbers.

        Returns:
            The key, or None. The location of the data does not count as a difference.
        """
        keys = [key for key in self.keys if key != "data.source"]
        if len(keys) != 1 or not all(_is_number(_flat(run.recipe).get(keys[0])) for run in self.runs):
            return None
        return keys[0]

    def differences(self) -> list[tuple[Line, Line, PairedDifference]]:
        """Compare each run's result with that of the first run with the same method and budget, paired by seed.

        Returns:
            The row, the row of the first run, and their difference.
        """
        found = []
        for number, line in enumerate(self.own):
            same = [each for each in self.own[:number] if _kind(each.row) == _kind(line.row)]
            if same and same[0].seeds == line.seeds and all(each.is_complete for each in (same[0], line)):
                found.append((line, same[0], compare_paired(line.row.accuracies, same[0].row.accuracies)))
        return found


def read_comparison(paths: Sequence[Path]) -> Comparison:
    """Read several run directories; runs of equal names are told apart by their paths.

    Args:
        paths: The run directories, at least two.

    Returns:
        The comparison.

    Raises:
        RecipeError: If there are too few runs, one is given twice, or one is not a run of `cafenet run`.
    """
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
    """Build a table of the differing keys for the terminal, with one line per key and one column per run.

    Args:
        comparison: The runs.

    Returns:
        The table.
    """
    table = Table(title="what differs")
    for name in ("key", *(run.name for run in comparison.runs)):
        table.add_column(name, overflow="fold")
    for key, values in comparison.values().items():
        table.add_row(key, *(Text(str(value)) for value in values))
    return table


def comparison_table(comparison: Comparison) -> Table:
    """Build the table of results for the terminal; if few keys differ, each has a column of its own.

    Args:
        comparison: The runs.

    Returns:
        The table.
    """
    table = Table(caption="One multiply-add is one FLOP. Accuracy on the test set; time of the whole run.")
    for name in ("run", *shown_keys(comparison), "method", "budget", "FLOPs", "accuracy", "time"):
        table.add_column(name, justify="right" if name in ("FLOPs", "accuracy", "time") else "left", overflow="fold")
    for line in comparison.lines:
        table.add_row(*(Text(str(cell)) for cell in _cells(line, shown_keys(comparison))))
    return table


def shown_keys(comparison: Comparison) -> list[str]:
    """Return the differing keys, or none if they would fill a terminal.

    Args:
        comparison: The runs.

    Returns:
        The keys.
    """
    return comparison.keys if len(comparison.keys) <= _MOST_COLUMNS else []


def _cells(line: Line, keys: Sequence[str]) -> list[Any]:
    """Return the cells of a line in the table of the terminal."""
    row = line.row
    settings = [line.settings[key] for key in keys]
    minutes = f"{total_seconds(line.run) / 60:.1f} min"
    return [line.run.name, *settings, row.method, row.budget or "-", count(row.flops), row.accuracy, minutes]


def sentences(comparison: Comparison) -> list[str]:
    """Describe the differences in words; a sentence names a win or a loss only if the interval supports it.

    Args:
        comparison: The runs.

    Returns:
        One sentence per difference.
    """
    return [
        f"{line.label} - {first.label}: {in_words(difference)}" for line, first, difference in comparison.differences()
    ]


def total_seconds(run: RunRecord) -> float:
    """Return the time of a run, over all starts and steps.

    Args:
        run: The run.

    Returns:
        The time in seconds.
    """
    return float(sum((run.manifest.get("seconds") or {}).values()))


def spread(row: Row) -> tuple[float, float]:
    """Return the mean accuracy of a row in percent and its standard deviation (0 for one seed).

    Args:
        row: The row.

    Returns:
        Mean and standard deviation.
    """
    percent = [100 * value for value in row.accuracies]
    return mean(percent), stdev(percent) if len(percent) > 1 else 0.0


def _kind(row: Row) -> tuple[str, str]:
    """Return method and budget of a row."""
    return row.method, row.budget


def _is_same(first: Row, second: Row) -> bool:
    """Return whether two rows report the same training, as baselines do in runs that share them."""
    is_own = first.method.startswith("CafeNet")
    facts = [(_kind(row), row.accuracies, row.flops, row.widths) for row in (first, second)]
    return not is_own and facts[0] == facts[1]


def _is_number(value: Any) -> bool:
    """Return whether a value is a number and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _flat(document: dict[str, Any], place: str = "") -> dict[str, Any]:
    """Return nested values by keys with dots, as the flags spell them."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        where = f"{place}.{key}" if place else key
        if where in WITHOUT_EFFECT:
            continue
        found |= _flat(value, where) if isinstance(value, dict) and value else {where: value}
    return found
