"""Algorithm 1 of the paper from start to end, in steps that can each be stopped and continued."""

import logging
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

from torch import nn

from cafenet.common.run_files import RESULTS, SPACE
from cafenet.common.run_places import FIXED_SUPERNET, SUPERNET
from cafenet.common.write_files import write_file
from cafenet.errors import RecipeError
from cafenet.modules.copying import RECORD
from cafenet.pipeline.entries import Entry, write_entries
from cafenet.pipeline.one_stage import train_stage
from cafenet.pipeline.shared_search import ENDED, RUNNING, SharedSearch
from cafenet.runs.directory import RecipeDirectory
from cafenet.runs.final_models import final_model, load_final
from cafenet.runs.methods import baseline_entries, searched_entries
from cafenet.runs.recipe import Recipe
from cafenet.runs.recipe_files import as_document as as_plain
from cafenet.runs.results import Row, as_document
from cafenet.runs.workload import Workload
from cafenet.runs.workload_checks import check_workload
from cafenet.searching.latency.measure import Latency, measure_latencies
from cafenet.space.description import describe_space
from cafenet.space.extraction import SlimRecord
from cafenet.supernet.build import build_bins
from cafenet.supernet.train import share_full_network
from cafenet.training.process_group import processes

Step = Literal["train", "search", "finetune", "evaluate"]
"""The steps of a run, in their order."""

_log = logging.getLogger(__name__)


def run_recipe(
    recipe: Recipe,
    directory: Path,
    *,
    until: Step = "evaluate",
    storage: str | None = None,
    study: str | None = None,
    quiet: bool = False,
    command: list[str] | None = None,
) -> list[Row]:
    """Run a recipe in a directory up to a step; finished work is not repeated.

    Everything that can be wrong is checked before the first long step.

    Args:
        recipe: The recipe.
        directory: The run directory.
        until: The last step to run.
        storage: URL of a storage for the scores, which workers on other machines may join (`cafenet worker`). None
            keeps them in the run directory.
        study: Name of the search in the storage, by default the name of the directory.
        quiet: If True, no progress is shown.
        command: The command line for the manifest, by default that of this process.

    Returns:
        The rows of the table; empty if the run ends before `evaluate`.

    Raises:
        CafeNetError: If the recipe, the data or a file in the directory cannot be used.
    """
    shared = None
    if storage is not None:
        shared = SharedSearch(storage, study or directory.resolve().name, directory, as_plain(recipe))
    team = processes()
    if team.size > 1 and (until != "train" or recipe.stages.num_stages > 1):
        raise RecipeError(
            f"several processes can train the supernet of one stage, but there are {team.size} for a run up to "
            f"{until!r} of {recipe.stages.num_stages} stages; use `cafenet train` under torchrun, with "
            "train.examples_per_step, and then `cafenet run` in one process"
        )
    workload = Workload(recipe, directory, shared=shared, quiet=quiet or not team.is_first)
    check_workload(workload)
    if workload.scaling_note and not workload.quiet:
        print(workload.scaling_note, file=sys.stderr)
    place = team.on_first(lambda: _begun(workload, directory, command))
    with place.timed("train") if team.is_first else nullcontext():
        _train(workload, directory)
    if until == "train":
        return []
    with place.timed("search"):
        entries = [*baseline_entries(workload, directory), *searched_entries(workload, directory)]
        write_entries(entries, workload.space.full_widths, directory)
    if shared is not None:
        shared.tell(ENDED)
    for entry in entries:
        _log.info("%s %s: score %s", entry.method, entry.budget or "-", entry.search_score)
    if until == "search":
        return []
    with place.timed("finetune"):
        for entry in entries:
            for seed in recipe.finetune.seeds:
                _log.info("final model %s %s, seed %d", entry.method, entry.budget or "-", seed)
                final_model(workload, entry, seed, directory)
    if until == "finetune":
        return []
    with place.timed("evaluate"):
        models = [load_final(workload, entry, recipe.finetune.seeds[0], directory) for entry in entries]
        latencies = measure_latencies(models, workload.example, recipe.latency)
        rows = [
            _row(workload, entry, model, latency, directory)
            for entry, model, latency in zip(entries, models, latencies, strict=True)
        ]
        write_file(RESULTS, directory, as_document(rows, recipe.reference))
    place.finish()
    return rows


def _begun(workload: Workload, directory: Path, command: list[str] | None) -> RecipeDirectory:
    """Begin or continue the run directory; the first of several processes does."""
    place = RecipeDirectory(directory, workload.whole_recipe, command)
    place.check_data(workload.data_digests["train"])
    workload.keep_latencies()
    bins = build_bins(workload.space, workload.recipe.supernet)
    attributes = workload.test.classes if workload.test.is_multi_label else None
    write_file(SPACE, directory, describe_space(workload.space, bins, attributes))
    _say_what(workload)
    if workload.shared is not None:
        workload.shared.tell(RUNNING)
    return place


def _say_what(workload: Workload) -> None:
    """Log what the run begins with, for --verbose."""
    space, recipe = workload.space, workload.recipe
    _log.info("%s: %d width groups, %s FLOPs", recipe.model.name, len(space.groups), f"{space.flops():,}")
    _log.info(
        "%s: %d training, %d validation, %d test examples",
        recipe.data.source,
        len(workload.train),
        len(workload.validation),
        len(workload.test),
    )
    for budget in workload.budgets:
        _log.info("budget %s", budget.text)


def _train(workload: Workload, directory: Path) -> None:
    """Train the supernets of a single stage; those of several stages are trained when their searches need them."""
    if workload.recipe.stages.num_stages > 1:
        return
    algorithm = workload.recipe.algorithms[0]
    model, space, budgets = workload.model, workload.space, workload.budgets
    train_stage(model, space, budgets, workload.job(algorithm), directory / SUPERNET)
    if workload.has_fixed_baseline:
        fixed = workload.job(algorithm, fixed=True)
        share_full_network(directory / SUPERNET, directory / FIXED_SUPERNET)
        train_stage(model, space, budgets, fixed, directory / FIXED_SUPERNET)


def _row(workload: Workload, entry: Entry, model: nn.Module, latency: Latency, directory: Path) -> Row:
    """Return the costs of an entry, counted on the final model itself, and its accuracies."""
    recipe = workload.recipe
    evaluations = [final_model(workload, entry, seed, directory) for seed in recipe.finetune.seeds]
    record: SlimRecord = getattr(model, RECORD)
    widths = {group.name: group.channels for group in workload.space.groups} | dict(record.widths)
    attributes = [each["per_attribute"] for each in evaluations if "per_attribute" in each]
    top5 = [each["top5"] for each in evaluations if "top5" in each]
    return Row(
        method=entry.method,
        budget=entry.budget,
        flops=int(workload.space.flops(widths)),
        params=int(workload.space.params(widths)),
        latency_ms=latency.median,
        latency_quartiles_ms=(latency.low, latency.high),
        accuracies=tuple(each["accuracy"] for each in evaluations),
        search_score=entry.search_score,
        widths=widths,
        per_attribute=tuple(sum(column) / len(column) for column in zip(*attributes, strict=True)) or None,
        top5=sum(top5) / len(top5) if top5 else None,
    )
