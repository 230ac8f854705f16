"""A worker of a search that runs elsewhere: it needs the storage's URL and the run's directory, or a URL of it.

The run announces in the storage which supernet is searched for which budgets (`pipeline/shared_search.py`). A worker
takes the recipe from there, the weights from the directory, the data from where the recipe says, and scores widths that
nobody has claimed, until the run has ended.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from cafenet.common.fetch import RunPlace
from cafenet.common.interrupts import Stopped, graceful_stop
from cafenet.common.run_files import RECIPE
from cafenet.common.run_places import SUPERNET_CHECKPOINT
from cafenet.common.yaml_text import read_yaml
from cafenet.errors import CafeNetWarning, RecipeError, StoreError
from cafenet.pipeline.job import Job
from cafenet.pipeline.shared_search import ENDED, budget_of, versions
from cafenet.pipeline.stage_plan import Stage
from cafenet.pipeline.stages import job_of_stage, narrowed_space
from cafenet.runs.devices import find_device
from cafenet.runs.directory import WITHOUT_EFFECT
from cafenet.runs.recipe import Recipe
from cafenet.runs.recipe_files import load_tree
from cafenet.runs.workload import Workload
from cafenet.scoring.scorer import Scorer
from cafenet.searching.store.board import Board
from cafenet.searching.width_search import WidthSearch
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.build import build_supernet
from cafenet.supernet.trained import load_trained

WAIT_SECONDS = 600.0
"""Seconds without any work after which a worker ends."""
_POLL_SECONDS = 1.0
_OF_THE_PLACE = ("device", "search_workers", *WITHOUT_EFFECT)
"""Keys of a recipe that may differ between the machines of a run."""


@dataclass(frozen=True)
class WorkDone:
    """The work of one worker in a search."""

    searches: int
    """Number of searches that the worker took part in."""
    scored: int
    """Number of widths that it scored."""
    reason: str
    """The reason why it ended."""


def join_search(
    storage: str,
    run: str | Path,
    *,
    study: str | None = None,
    device: str | None = None,
    data: str | None = None,
    wait_seconds: float = WAIT_SECONDS,
    tell: Callable[[str], None] = lambda line: None,
) -> WorkDone:
    """Score widths of a search that `cafenet run --storage` runs elsewhere, until it ends.

    Args:
        storage: URL of the storage.
        run: The run's directory, a copy of it, or a URL that fsspec reads, such as `s3://bucket/runs/demo`.
        study: Name of the search in the storage. None takes the one with the name of the run, or else the only one.
        device: Device of this worker, by default that of the recipe.
        data: Source of the data on this machine, by default that of the recipe; the data must be the same.
        wait_seconds: Seconds without work after which the worker ends.
        tell: Called with a line of text when the worker begins or ends a part of its work.

    Returns:
        What was done.

    Raises:
        StoreError: If the storage cannot be used, has no such search, or another version of CafeNet runs it.
        RecipeError: If the directory belongs to a run of another recipe.
        RunFileError: If a file of the run cannot be read.
    """
    board, until = Board(storage), time.monotonic() + wait_seconds
    num_scored, done, is_told = 0, set[str](), False
    with RunPlace(run) as place, graceful_stop() as stopped:
        while True:
            _stop(stopped)
            try:
                name, notice = _chosen(board, study, place)
            except StoreError as error:  # a worker may start before the search does
                if time.monotonic() > until:
                    raise
                if not is_told:
                    tell(f"waiting for the search: {error}")
                is_told = True
                time.sleep(min(_POLL_SECONDS, wait_seconds / 4))
                continue
            task = notice["task"]
            if task is not None and str(task) not in done:
                expect_same(notice, place)
                num_scored += _take_part(notice, storage, place, (device, data), stopped, tell)
                done.add(str(task))
                until = time.monotonic() + wait_seconds
            elif notice["state"] == ENDED:
                return WorkDone(len(done), num_scored, f"the search {name} has ended")
            elif time.monotonic() > until:
                return WorkDone(len(done), num_scored, f"the search {name} had no work for {wait_seconds:.0f} seconds")
            else:
                time.sleep(min(_POLL_SECONDS, wait_seconds / 4))


def expect_same(notice: Mapping[str, Any], place: RunPlace) -> None:
    """Refuse a search of another version, and the directory of another recipe.

    Args:
        notice: What the running search has announced.
        place: The run's directory.

    Raises:
        StoreError: If another version of CafeNet runs the search.
        RecipeError: If the directory belongs to a run of another recipe.
    """
    here, there = versions(), notice["versions"]
    if here["cafenet"] != there["cafenet"]:
        raise StoreError(
            f"a worker must have the CafeNet of the search, {there['cafenet']}, but has {here['cafenet']}; install it "
            f"with pip install cafenet=={there['cafenet']}"
        )
    if here["torch"] != there["torch"]:
        warnings.warn(
            f"this worker has torch {here['torch']} and the search {there['torch']}; scores may differ in their last "
            "digits",
            CafeNetWarning,
            stacklevel=2,
        )
    own = read_yaml(place.file(RECIPE.name).read_text(), RECIPE.name)
    changed = _differences(notice["recipe"], own)
    if changed:
        raise RecipeError(
            f"{place.name} must be the directory of the search's run, but its recipe differs "
            f"({'; '.join(changed[:4])}); give the right --run, or --study for another search of the storage"
        )


def _differences(there: Mapping[str, Any], here: Any, prefix: str = "") -> list[str]:
    """Return the keys in which two recipes differ, but for those that machines may have otherwise."""
    if not isinstance(here, Mapping):
        return [f"{prefix or 'it'} is {here!r:.40}"]
    found = []
    for key in {**there, **here}:
        if not prefix and key in _OF_THE_PLACE:
            continue
        left, right, name = there.get(key), here.get(key), f"{prefix}{key}"
        if isinstance(left, Mapping):
            found += _differences(left, right or {}, f"{name}.")
        elif _plain(left) != _plain(right):
            found.append(f"{name} is {left!r} there and {right!r} here")
    return found


def _plain(value: Any) -> Any:
    """Return tuples as lists, as files hold them."""
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _chosen(board: Board, study: str | None, place: RunPlace) -> tuple[str, dict[str, Any]]:
    """Return the search to join: the one that was asked for, that has the name of the run, or the only one."""
    notices = board.read()
    name = study or place.name.rpartition("/")[2]
    if name in notices:
        return name, notices[name]
    if study is None and len(notices) == 1:
        return next(iter(notices.items()))
    if not notices:
        raise StoreError(
            f"{board.address} must hold a search that can be joined, but holds none; start it first, with cafenet run "
            "RECIPE --storage URL"
        )
    raise StoreError(
        f"{board.address} must hold the search {name!r}, but holds {', '.join(map(repr, sorted(notices)))}; give its "
        "name with --study"
    )


def _take_part(
    notice: Mapping[str, Any],
    storage: str,
    place: RunPlace,
    here: tuple[str | None, str | None],
    stopped: list[str],
    tell: Callable[[str], None],
) -> int:
    """Score widths of one search until its algorithm proposes no more; return their number."""
    task = notice["task"]
    workload = Workload(_recipe(notice["recipe"], *here), quiet=True)
    search = _search(workload, task, place.file(f"{task['place']}/{SUPERNET_CHECKPOINT}"))
    num_scored = 0
    for asked in task["budgets"]:
        tell(f"{task['study']}: {asked['text']}")
        scored, total = search.help(budget_of(asked), storage, task["study"], partial(_stop, stopped))
        num_scored += scored
        tell(f"{task['study']}: {asked['text']}: {scored} of {total} widths scored here")
    return num_scored


def _recipe(document: Mapping[str, Any], device: str | None, data: str | None) -> Recipe:
    """Return the recipe of a search as this machine runs it."""
    recipe = load_tree(Recipe, "the search's recipe", yaml.safe_dump(dict(document)))
    if data is not None:
        recipe = replace(recipe, data=replace(recipe.data, source=data))
    if device is not None:
        find_device(device)
        recipe = replace(recipe, device=device)
    return recipe


def _search(workload: Workload, task: Mapping[str, Any], checkpoint: Path) -> WidthSearch:
    """Build the search that a task describes."""
    job = workload.job(task["algorithm"], fixed=task["fixed"])
    space = _space(workload, job, task)
    own = job_of_stage(job, workload.space, space)
    supernet = build_supernet(space.model, space, own.supernet, beta=task.get("beta"), seed=own.training.seed)
    load_trained(supernet, checkpoint)
    scorer = Scorer(supernet, own.train_data, own.val_data, metric=own.metric, loss=own.loss, config=own.scoring)
    return WidthSearch(scorer, own.algorithm, replace(own.search, search_workers=1), own.latency)


def _space(workload: Workload, job: Job, task: Mapping[str, Any]) -> WidthSpace:
    """Return the width space of a task: that of the model, or of the one that an earlier stage found."""
    kept = task.get("kept")
    if kept is None:
        return workload.space
    stage = Stage(task["stage"], budget_of(task["budgets"][0]), task["beta"])
    slim = workload.space.extract(channels=kept)
    found = narrowed_space(slim, workload.example, job, workload.space, stage)
    if found is None:
        raise StoreError("the model of an earlier stage must have widths within the budget, but has none here")
    return found


def _stop(stopped: list[str]) -> None:
    """Raise `Stopped` if a signal has arrived."""
    if stopped:
        raise Stopped(f"stopped by {stopped[0]}; the search goes on without this worker", stopped[0])
