"""The methods of a run's table and the channels that each of them found, searches and baselines alike."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from cafenet.common.run_places import FIXED_SUPERNET, RANDOM, SUPERNET, search_place, slug
from cafenet.pipeline.entries import Entry
from cafenet.pipeline.one_stage import run_supernet
from cafenet.pipeline.stages import search_in_stages
from cafenet.runs.workload import Workload
from cafenet.scoring.evaluation import evaluate
from cafenet.searching.algorithms.base import METHODS
from cafenet.searching.budget import Budget
from cafenet.searching.uniform_widths import uniform_widths
from cafenet.supernet.build import divisor_of
from cafenet.supernet.plain_training import train_model


def searched_entries(workload: Workload, directory: Path) -> Iterator[Entry]:
    """Search with every algorithm of the recipe.

    Args:
        workload: The parts of the run.
        directory: The run directory.

    Yields:
        One entry per algorithm and budget.
    """
    for algorithm in workload.recipe.algorithms:
        yield from _searched(workload, directory, algorithm, METHODS[algorithm])


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
            yield random_entry(workload, budget, directory / RANDOM)
    if workload.has_fixed_baseline:
        algorithm = workload.recipe.algorithms[0]
        yield from _searched(workload, directory, algorithm, "Fixed sharing", fixed=True)


def _searched(
    workload: Workload, directory: Path, algorithm: str, label: str, *, fixed: bool = False
) -> Iterator[Entry]:
    """Yield the entries of one algorithm, in one stage or in several."""
    job, stages = workload.job(algorithm, fixed=fixed), workload.recipe.stages
    supernet = FIXED_SUPERNET if fixed else SUPERNET
    if stages.num_stages == 1:
        place = directory / supernet
        _, results = run_supernet(workload.model, workload.space, workload.budgets, job, place)
        for budget, result in zip(workload.budgets, results, strict=True):
            yield Entry(label, budget.text, dict(result.channels), result.score, place)
        return
    for budget in workload.budgets:
        place = search_place(directory, budget.text, supernet)
        full = workload.full_costs(budget)
        found = search_in_stages(workload.space, workload.example, budget, job, stages, place, full)
        yield Entry(label, budget.text, dict(found.result.channels), found.result.score, found.place)


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
        place = directory / slug(budget.text) / f"width-{number}"
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
    widths = uniform_widths(space, within, min_width=options.min_width, divisor=divisor_of(options))
    return _leading_channels(workload, widths)


def _leading(workload: Workload, bin_counts: np.ndarray, budget: Budget) -> dict[str, list[int]]:
    """Return the leading channels of bins per group."""
    return _leading_channels(workload, workload.feasible(budget).bins.widths(bin_counts))


def _leading_channels(workload: Workload, widths: np.ndarray) -> dict[str, list[int]]:
    """Return the leading channels of widths per group."""
    return {group.name: list(range(width)) for group, width in zip(workload.space.groups, widths.tolist(), strict=True)}
