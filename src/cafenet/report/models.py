"""The finished models of a run or of a search, in one form: what they cost and how well they do.

`cafenet run` keeps them in `results.json`, one accuracy on the test data per seed; `cafenet.search` in `gain.json`, one
training each, with scores on the validation data and perhaps on test data. No score here is that of a supernet.
"""

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from cafenet.common.read_files import read_what_is_left
from cafenet.common.run_files import EVALUATION
from cafenet.common.run_places import SLIM, model_place
from cafenet.common.statistics import PairedDifference, compare_paired
from cafenet.pipeline.entries import Entry
from cafenet.pipeline.gain import Gain, Measured, gain_from
from cafenet.report.kinds import OWN, kind_of
from cafenet.report.run_records import RunRecord
from cafenet.runs.results import Row
from cafenet.scoring.metrics import in_own_unit

_SHARES = ("accuracy", "token_accuracy")


@dataclass(frozen=True)
class Model:
    """One finished model."""

    method: str
    """Name of the method: "Original", "Uniform", "CafeNet-T" and so on."""
    kind: str
    """CSS class of its colour."""
    budget: str
    """The budget as the user wrote it; empty for the original."""
    flops: int
    """FLOPs; one multiply-add counts as one."""
    params: int
    """Number of parameters."""
    latency_ms: float
    """Median time of a forward pass."""
    file_bytes: int | None
    """Size of a file of its weights, if it is known."""
    validation: float | None
    """Score on the validation data, if there is one of the finished model."""
    tests: tuple[float, ...]
    """Scores on the test data, one per seed; empty without test data."""
    widths: Mapping[str, int]
    """Number of channels of each group, by name."""
    latency_range_ms: tuple[float, float] | None = None
    """Lower and upper quartile of the times, if they are known."""

    @property
    def name(self) -> str:
        """Method and budget in words."""
        return f"{self.method} {self.budget}".strip()

    @property
    def scores(self) -> tuple[float, ...]:
        """The scores that count: on the test data if there are any, otherwise on the validation data."""
        return self.tests or (() if self.validation is None else (self.validation,))


@dataclass(frozen=True)
class Models:
    """The finished models of a run, and the conditions that they share."""

    metric: str
    """Name of the metric."""
    models: tuple[Model, ...]
    """The models: the original first, if there is one."""
    num_examples: int | None
    """Number of examples behind the scores that count, if it is known."""
    gain: Gain | None = None
    """The comparison of a search, for its first budget; None for a run, which keeps a table."""
    better_uniform: frozenset[str] = frozenset()
    """Budgets of a search for which Uniform has the better score on the validation data."""
    taken_uniform: frozenset[str] = frozenset()
    """Budgets for which Uniform is the slim model, because it is the better one."""

    @property
    def own(self) -> list[Model]:
        """The models that CafeNet found."""
        return [each for each in self.models if each.kind == OWN]

    @property
    def original(self) -> Model | None:
        """The original network, if it is among them."""
        return next((each for each in self.models if not each.budget), None)

    @property
    def data(self) -> str:
        """Name of the data behind the scores that count."""
        return "test data" if any(each.tests for each in self.models) else "validation data"

    @property
    def is_share(self) -> bool:
        """True if scores are shown in percent."""
        return self.metric in _SHARES

    def shown(self, score: float) -> str:
        """Return a score in the unit that people know it in.

        Args:
            score: The score.

        Returns:
            The text.
        """
        return f"{self.unit(score):.2f}%" if self.is_share else f"{self.unit(score):.4g}"

    def spread(self, scores: Sequence[float]) -> str:
        """Return the mean of some scores, with their standard deviation.

        Args:
            scores: The scores, one per seed.

        Returns:
            The text, empty without scores.
        """
        if len(scores) < 2 or not self.is_share:
            return self.shown(mean(scores)) if scores else ""
        return f"{100 * mean(scores):.2f} ± {100 * stdev(scores):.2f}%"

    def unit(self, score: float) -> float:
        """Return a score as a number of the unit that people know it in.

        Args:
            score: The score.

        Returns:
            Percent for shares.
        """
        return 100 * score if self.is_share else in_own_unit(self.metric, score)

    @property
    def axis(self) -> str:
        """Title of an axis of scores."""
        return f"{self.metric} on the {self.data}{', %' if self.is_share else ''}"

    def difference(self, one: Model, other: Model) -> PairedDifference | None:
        """Return a difference of shares, paired by seed, or None where it is none or scores are missing.

        Args:
            one: The model.
            other: The model that it is compared with.

        Returns:
            The difference.
        """
        is_fair = self.is_share and len(one.scores) == len(other.scores) and bool(one.scores)
        return compare_paired(one.scores, other.scores) if is_fair else None


def models_of(run: RunRecord) -> Models | None:
    """Return the finished models of a run or a search.

    Args:
        run: The records of the run.

    Returns:
        The models, or None if there are none yet.
    """
    if run.gains:
        return _of_search(run, run.gains)
    rows = rows_of(run)
    return _of_run(run, rows) if rows else None


def rows_of(run: RunRecord) -> list[Row]:
    """Return the rows of a run's table, or none if there is no table yet.

    Args:
        run: The records of the run.

    Returns:
        The rows.
    """
    return [Row(**{**row, "accuracies": tuple(row["accuracies"])}) for row in (run.results or {}).get("rows", [])]


def _of_run(run: RunRecord, rows: Sequence[Row]) -> Models:
    """Return the models of `results.json`."""
    methods = [row.method for row in rows]
    places = [_place(run, row) for row in rows]
    found = tuple(
        Model(
            method=row.method,
            kind=kind_of(row.method, methods),
            budget=row.budget,
            flops=row.flops,
            params=row.params,
            latency_ms=row.latency_ms,
            file_bytes=_size(place / SLIM),
            validation=None,
            tests=row.accuracies,
            widths=row.widths,
            latency_range_ms=_pair(row.latency_quartiles_ms),
        )
        for row, place in zip(rows, places, strict=True)
    )
    tested = read_what_is_left(EVALUATION, places[0], [])
    return Models("accuracy", found, None if tested is None else tested["num_examples"])


def _of_search(run: RunRecord, contents: Sequence[Mapping[str, Any]]) -> Models:
    """Return the models of `gain.json`, with the names that runs use; the original stands there once."""
    gains = [gain_from(each) for each in contents]
    entries = run.entries or [{"method": "CafeNet", "budget": run.recipe.get("budget", "")}]
    found = []
    for gain, entry in zip(gains, entries, strict=False):
        names = {"before": "Original", "after": entry["method"]}
        found += [_measured(run, each, names.get(each.name, each.name), entry) for each in gain.models]
    models = found[:1] + [each for each in found[1:] if each.budget]
    first = gains[0]
    by_budget = {entry["budget"]: gain for gain, entry in zip(gains, entries, strict=False)}
    better = frozenset(budget for budget, gain in by_budget.items() if gain.is_uniform_better)
    taken = frozenset(budget for budget, gain in by_budget.items() if gain.takes_uniform)
    num_examples = first.num_test or first.num_validation
    return Models(first.metric, tuple(models), num_examples, first, better, taken)


def _measured(run: RunRecord, each: Measured, method: str, entry: Mapping[str, Any]) -> Model:
    """Return one model of a search."""
    kind = kind_of(method)
    return Model(
        method=method,
        kind=kind,
        budget="" if each.name == "before" else entry["budget"],
        flops=each.flops,
        params=each.params,
        latency_ms=each.latency_ms,
        file_bytes=each.file_bytes,
        validation=each.score,
        tests=() if each.test_score is None else (each.test_score,),
        widths={name: len(kept) for name, kept in (entry.get("channels") or {}).items()}
        if kind == OWN
        else each.widths or {},
        latency_range_ms=each.latency_range_ms,
    )


def _pair(quartiles: Sequence[float] | None) -> tuple[float, float] | None:
    """Return quartiles as a pair."""
    return None if quartiles is None else (quartiles[0], quartiles[1])


def _place(run: RunRecord, row: Row) -> Path:
    """Return the directory of a row's first final training."""
    seeds = run.recipe.get("finetune", {}).get("seeds") or [0]
    return model_place(run.path, Entry(row.method, row.budget, None).key, seeds[0])


def _size(path: Path) -> int | None:
    """Return the size of a model's file, or None if it is missing or damaged."""
    return path.stat().st_size if zipfile.is_zipfile(path) else None
