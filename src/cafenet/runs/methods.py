"""The methods of a run's table and the channels that each of them found, searches and baselines alike."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from cafenet.common.files import write_json
from cafenet.common.run_files import ENTRIES, read_if_there
from cafenet.errors import RecipeError
from cafenet.pipeline.stages import run_supernet, search_in_stages
from cafenet.runs.workload import Workload
from cafenet.scoring.evaluation import evaluate
from cafenet.searching.algorithms.base import METHODS
from cafenet.searching.budget import Budget
from cafenet.searching.uniform_widths import uniform_widths
from cafenet.supernet.plain_training import train_model


@dataclass(frozen=True)
class Entry:
    """One future row of the table: a method, its budget, and the channels that it keeps."""

    method: str
    """Name of the method, for example "CafeNet-T" or "Uniform"."""
    budget: str
    """The budget as the user wrote it; empty for the original network."""
    channels: dict[str, list[int]] | None
    """Numbers of the kept channels of each group, or None if all are kept."""
    search_score: float | None = None
    """Score on the validation data in the supernet, if the method searched one."""
    supernet: Path | None = None
    """Directory of the supernet whose weights belong to the channels."""

    @property
    def key(self) -> str:
        """Name of the entry's directory: "50%" and "CafeNet-E" give "50pct-cafenet-e"."""
        text = f"{self.budget.replace('%', 'pct')}-{self.method}" if self.budget else self.method
        return "".join(character if character.isalnum() or character in ".-" else "-" for character in text).lower()


def write_entries(entries: list[Entry], directory: Path) -> None:
    """Write what every method found.

    Args:
        entries: The entries.
        directory: The run directory.
    """
    document = [{**asdict(entry), "supernet": entry.supernet and entry.supernet.name} for entry in entries]
    write_json(directory / ENTRIES.name, document)


def read_entries(directory: Path) -> list[Entry]:
    """Read what the methods of a run found.

    Args:
        directory: The run directory.

    Returns:
        The entries.

    Raises:
        RecipeError: If the run has no finished search.
    """
    found = read_if_there(ENTRIES, directory)
    if found is None:
        raise RecipeError(f"{directory} must hold a finished search, but has no {ENTRIES.name}; see `cafenet run`")
    known = [field.name for field in fields(Entry)]
    return [
        Entry(**{name: entry[name] for name in known if name in entry} | {"supernet": _supernet(entry, directory)})
        for entry in found
    ]


def _supernet(entry: dict[str, Any], directory: Path) -> Path | None:
    """Return the directory of an entry's supernet, if it has one."""
    name = entry.get("supernet")
    return directory / name if isinstance(name, str) else None


def searched_entries(workload: Workload, directory: Path) -> Iterator[Entry]:
    """Search with every algorithm of the recipe.

    Args:
        workload: The parts of the run.
        directory: The run directory.

    Yields:
        One entry per algorithm and budget.
    """
    for algorithm in workload.recipe.algorithms:
        yield from _searched(workload, directory / "supernet", algorithm, METHODS[algorithm], fixed=False)


def baseline_entries(workload: Workload, directory: Path) -> Iterator[Entry]:
    """Build the baselines that the recipe asks for.

    Args:
        workload: The parts of the run.
        directory: The run directory.

    Yields:
        One entry per baseline and budget.
    """
    config = workload.recipe.baselines
    if config.original:
        yield Entry("Original", "", None)
    if config.uniform:
        for budget in workload.budgets:
            yield Entry("Uniform", budget.text, _uniform(workload, budget))
    if config.random_widths:
        for budget in workload.budgets:
            yield random_entry(workload, budget, directory / "random")
    if workload.has_fixed_baseline:
        algorithm = workload.recipe.algorithms[0]
        yield from _searched(workload, directory / "supernet-fixed", algorithm, "Fixed pattern", fixed=True)


def _searched(workload: Workload, directory: Path, algorithm: str, label: str, *, fixed: bool) -> Iterator[Entry]:
    """Yield the entries of one algorithm on one supernet, in one stage or in several."""
    job, stages = workload.job(algorithm, fixed=fixed), workload.recipe.stages
    if stages.num_stages == 1:
        _, results = run_supernet(workload.model, workload.space, workload.budgets, job, directory)
        for budget, result in zip(workload.budgets, results, strict=True):
            yield Entry(label, budget.text, dict(result.channels), result.score, directory)
        return
    for budget in workload.budgets:
        place = directory / Entry(algorithm, budget.text, None).key
        full = workload.full_costs(budget)
        result = search_in_stages(workload.space, workload.example, budget, job, stages, place, full).result
        yield Entry(label, budget.text, dict(result.channels), result.score)


def random_entry(workload: Workload, budget: Budget, directory: Path) -> Entry:
    """Build the Random baseline: the best of some random widths under the budget.

    Each of the widths is trained for a while, and the best on the validation set is taken. Like every row, it is then
    trained in full, so that its schedule equals that of the others.

    Args:
        workload: The parts of the run.
        budget: The budget.
        directory: Directory of the short trainings.

    Returns:
        The entry.
    """
    recipe = workload.recipe
    feasible, rng = workload.feasible(budget), np.random.default_rng(recipe.seed)
    rows = np.unique(feasible.sample(recipe.baselines.random_widths, rng), axis=0)
    config = replace(recipe.finetune.training(recipe.seed), epochs=recipe.baselines.random_epochs)
    scores = []
    for number, row in enumerate(rows):
        channels = _leading(workload, row, budget)
        place = directory / Entry("random", budget.text, None).key / f"width-{number}"
        trained = train_model(
            workload.space.extract(channels=channels, model=workload.build(recipe.seed)),
            workload.example,
            workload.loader(workload.train, augmented_batch=config.batch_size),
            config,
            loss=recipe.loss,
            directory=place,
            quiet=workload.quiet,
            title=f"random width {number + 1} of {len(rows)}",
            space=workload.space_of(channels),
        )
        scores.append(evaluate(trained, workload.loader(workload.validation))["accuracy"])
    return Entry("Random", budget.text, _leading(workload, rows[int(np.argmax(scores))], budget), max(scores))


def _uniform(workload: Workload, budget: Budget) -> dict[str, list[int]]:
    """Return the leading channels of one factor for all groups, in the smallest steps that the recipe allows."""
    options, space = workload.recipe.supernet, workload.space
    within = workload.feasible(budget)
    widths = uniform_widths(space, within, min_width=options.min_width, divisor=options.divisor)
    return _leading_channels(workload, widths)


def _leading(workload: Workload, bin_counts: np.ndarray, budget: Budget) -> dict[str, list[int]]:
    """Return the leading channels of bins per group."""
    return _leading_channels(workload, workload.feasible(budget).bins.widths(bin_counts))


def _leading_channels(workload: Workload, widths: np.ndarray) -> dict[str, list[int]]:
    """Return the leading channels of widths per group."""
    return {group.name: list(range(width)) for group, width in zip(workload.space.groups, widths.tolist(), strict=True)}
