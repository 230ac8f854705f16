"""The directory of `cafenet.search`: its settings as a recipe, the width space, and what was found for each budget."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import yaml
from torch import nn

from cafenet.common.read_files import read_if_there
from cafenet.common.run_files import ENTRIES, MANIFEST, RECIPE, SPACE, STAGES, START
from cafenet.common.run_places import expect_maker
from cafenet.common.write_files import write_file
from cafenet.errors import RecipeError, RunFileError, TrainingError
from cafenet.modules.digests import digest_of_model
from cafenet.pipeline.entries import Entry, read_entries, write_entries
from cafenet.pipeline.job import Job
from cafenet.pipeline.run_directory import Again, RunDirectory
from cafenet.pipeline.stage_plan import StagesConfig
from cafenet.pipeline.stages import StagesResult
from cafenet.scoring.metrics import metric_name
from cafenet.searching.algorithms.base import METHODS
from cafenet.space.bins import Bins
from cafenet.space.description import describe_space
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.build import build_bins

_MAKER = "cafenet.search"
_PARTS = ("supernet", "sampling", "algorithm", "scoring", "latency", "freeze")


class SearchDirectory(RunDirectory):
    """The run directory of a search. Unlike that of a recipe, it lets options change that need no new training."""

    def __init__(self, path: Path, *, seed: int, budget: Any, is_kept: bool) -> None:
        """Describe the directory, or check that it belongs to a search; nothing is written yet.

        Args:
            path: The directory.
            seed: Seed of the search.
            budget: The budget, or several, as the user wrote them.
            is_kept: False if the directory is a temporary one.

        Raises:
            TrainingError: If the directory holds something else.
            RunFileError: If the recipe in the directory is damaged, or files have another format.
        """
        super().__init__(path, seed=seed, again=_call(budget), has_revision=is_kept)
        self._entries: list[Entry] = []
        self._earlier: list[Entry] = []
        self._groups: dict[str, int] = {}
        recipe = read_if_there(RECIPE, path)
        if recipe is not None:
            try:
                expect_maker(path, recipe, _MAKER)
            except RecipeError as error:
                raise TrainingError(str(error)) from error

    @property
    def is_begun(self) -> bool:
        """True if the directory holds a search already."""
        return (self.path / RECIPE.name).exists() and (self.path / MANIFEST.name).exists()

    @property
    def is_finished(self) -> bool:
        """True if the directory holds a search that has ended."""
        return self.is_begun and bool(self.manifest().get("finished"))

    def describe(
        self,
        model: nn.Module,
        space: WidthSpace,
        job: Job,
        budgets: Sequence[str],
        stages: Sequence[StagesConfig],
        bins: Bins | None = None,
    ) -> None:
        """Write the settings of a search, with the keys of a recipe, and its width space.

        Results of earlier calls for other budgets stay in the directory, with their budgets in the recipe. Settings
        that an earlier call had otherwise stand under `earlier`, by budget.

        Args:
            model: The original model, whose class is named in the description.
            space: The width space of the model.
            job: The data and options of the search.
            budgets: The budgets as the user wrote them.
            stages: The stages of the search for each budget.
            bins: The bins of the groups, by default those that the job's options make.
        """
        search = {name: value for name, value in asdict(job.search).items() if name != "search_workers"}
        self._earlier = [each for each in _entries_of(self.path) if each.budget not in budgets]
        all_budgets = [*dict.fromkeys(each.budget for each in self._earlier), *budgets]
        all_stages = {budget: _plain(each) for budget, each in zip(budgets, stages, strict=True)}
        all_stages = {
            each.budget: _plain(stages_before(_place_of(each)) or stages[0]) for each in self._earlier
        } | all_stages
        settings = {
            "metric": metric_name(job.metric),
            "train": _plain(job.training),
            **{name: _plain(getattr(job, name)) for name in _PARTS},
            **_plain(search),
        }
        content = {
            "call": _MAKER,
            "description": f"{type(model).__name__} at {', '.join(all_budgets)}",
            "budget": ",".join(all_budgets),
            **settings,
            "stages": _only(all_stages.values()) or all_stages,
        }
        earlier = _settings_before(self.path, [each.budget for each in self._earlier], settings)
        if earlier:
            content["earlier"] = earlier
        self._groups = space.full_widths
        self._again = _call(",".join(all_budgets))
        self.keep_recipe(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120))
        self.note_command()  # an earlier call may have asked for another budget
        write_file(SPACE, self.path, describe_space(space, bins or build_bins(space, job.supernet)))

    def add_entry(self, found: StagesResult) -> Entry:
        """Add the widths found for one budget to the entries, beside those of earlier calls for other budgets.

        Args:
            found: The result of the last stage.

        Returns:
            The new entry.
        """
        result = found.result
        method = METHODS.get(result.algorithm, f"CafeNet ({result.algorithm})")
        entry = Entry(method, result.budget, dict(result.channels), result.score, found.place)
        self._entries.append(entry)
        write_entries([*self._earlier, *self._entries], self._groups, self.path)
        return entry


def _call(budget: Any) -> Again:
    """Return how a search is repeated."""
    call = f"{_MAKER}(model, train_data, val_data, {budget!r}, directory='{{name}}', ...)"
    return Again("Call the function with the settings below", call)


def _entries_of(place: Path) -> list[Entry]:
    """Return what earlier calls found; a damaged file is written anew."""
    try:
        return read_entries(place) if (place / ENTRIES.name).exists() else []
    except RunFileError:
        return []


def _place_of(entry: Entry) -> Path:
    """Return the directory of the search that an entry comes from."""
    return Path() if entry.supernet is None else entry.supernet.parent


def _only(values: Iterable[Any]) -> Any:
    """Return the one value that all are equal to, or None."""
    first, *others = values
    return first if all(each == first for each in others) else None


def _settings_before(place: Path, budgets: Sequence[str], settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings that earlier calls had otherwise, by budget.

    Args:
        place: The directory of the search.
        budgets: The budgets of earlier calls.
        settings: The settings of this call.

    Returns:
        The settings of the earlier calls as far as they differ.
    """
    recipe = read_if_there(RECIPE, place) or {}
    last, before = {name: recipe.get(name) for name in settings}, recipe.get("earlier", {})
    had = {budget: last | before.get(budget, {}) for budget in budgets}
    different = {
        budget: {name: value for name, value in each.items() if value != settings[name]} for budget, each in had.items()
    }
    return {budget: each for budget, each in different.items() if each}


def expect_same_model(model: nn.Module, place: Path, *, is_trained: bool) -> None:
    """Record which trained model a search begins with; refuse the directory of a search of another one.

    A model that came untrained may have other weights at every start; those of the checkpoint count.

    Args:
        model: The original model.
        place: The directory of the search.
        is_trained: True if the model came trained.

    Raises:
        TrainingError: If the search in the directory began with another trained model.
    """
    content = {"weights": digest_of_model(model) if is_trained else None}
    before = read_if_there(START, place)
    if before is None:
        write_file(START, place, content)
    elif before != content:
        raise TrainingError(
            f"{place} must hold a search of this model, but the one that it holds began with other weights; use "
            "another directory, or remove it to begin again"
        )


def stages_before(search: Path) -> StagesConfig | None:
    """Return the stages of an earlier search for the same budget.

    Args:
        search: Directory of the search for one budget, as `search_place` names it.

    Returns:
        The stages, or None if there was no search.
    """
    found = read_if_there(STAGES, search)
    return None if found is None else StagesConfig(**found)


def _plain(config: Any) -> Any:
    """Return a config as plain JSON values. Other objects, such as a user's own algorithm, become their `repr`."""
    content = asdict(config) if is_dataclass(config) and not isinstance(config, type) else config
    return json.loads(json.dumps(content, default=repr))


@contextmanager
def kept_in(directory: str | Path | None) -> Iterator[Path]:
    """Provide the directory of a search: the user's own, or a temporary one that is removed on exit.

    Args:
        directory: The user's directory, or None for a temporary one.

    Yields:
        The directory, which need not exist yet if it is the user's.
    """
    if directory is not None:
        yield Path(directory)
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)
