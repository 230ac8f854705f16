"""The content of a run directory, read for people to look at; missing parts are named and are no error."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna

from cafenet.common.run_files import (
    DETECTION_RESULTS,
    ENTRIES,
    FULL_NETWORK,
    JOURNAL,
    LOG,
    MANIFEST,
    RECIPE,
    RESULTS,
    SPACE,
    SUPERNET,
    expect_this_format,
    maker_of,
    read_what_is_left,
)
from cafenet.errors import RecipeError, RunFileError, StoreError
from cafenet.report.file_checks import check_recipe, read_training_log
from cafenet.searching.store.journal_file import open_storage


@dataclass(frozen=True)
class TrialRecord:
    """One scored width."""

    widths: dict[str, int]
    """Channels of each group, by name."""
    value: float
    """The score, or its estimate if the width was dropped early."""
    costs: dict[str, float]
    """Costs by name: flops and params."""
    search: str
    """Name of the search that asked for the score."""
    label: str
    """Moment of the search, for example "iteration 3"."""
    is_complete: bool
    """False if the width was dropped early."""
    is_exact: bool
    """True if every candidate was scored on all examples."""
    seconds: float
    """Time that scoring took."""


@dataclass(frozen=True)
class StudyRecord:
    """One supernet: its training log and its scored widths."""

    name: str
    """Directory of the supernet, relative to the run."""
    log: list[dict[str, Any]]
    """Lines of the training log."""
    trials: list[TrialRecord]
    """The scored widths, oldest first."""


@dataclass(frozen=True)
class RunRecord:
    """A run as far as it has come."""

    path: Path
    """The run directory."""
    recipe: dict[str, Any]
    """The recipe as plain values."""
    manifest: dict[str, Any]
    """The manifest: times, versions, hardware."""
    space: dict[str, Any] | None
    """The width groups and frozen layers, or None if they are not written yet."""
    entries: list[dict[str, Any]]
    """The channels that each method found."""
    results: dict[str, Any] | None
    """The table of results, or None if the run has none yet."""
    studies: list[StudyRecord] = field(default_factory=list)
    """The supernets of the run."""
    title: str = ""
    """Name that replaces that of the directory, if two runs have the same."""
    problems: tuple[str, ...] = ()
    """One sentence for each damaged file, whose content is left out."""

    @property
    def name(self) -> str:
        """The title, or the name of the directory."""
        return self.title or self.path.resolve().name

    @property
    def maker(self) -> str:
        """The command that made the directory, for example `cafenet run`."""
        return maker_of(self.recipe)

    @property
    def is_detection(self) -> bool:
        """True if `cafenet detect` made the directory."""
        return _is_detection(self.recipe, self.results)

    def missing(self) -> list[str]:
        """Describe what the run has not reached yet.

        Returns:
            One sentence for each missing part.
        """
        found = []
        stopped = self.manifest.get("stopped")
        if stopped:
            found.append(f"the step {stopped['step']} ended with: {stopped['reason']}")
        if not any(study.log for study in self.studies):
            found.append("no supernet has been trained yet")
        if not any(study.trials for study in self.studies):
            found.append("no width has been scored yet")
        if not self.entries and not self._is_damaged(ENTRIES.name):
            found.append("the search has not finished")
        if self.results is None and not self.manifest.get("finished") and not self._is_damaged(RESULTS.name):
            found.append("the final models are not all trained")
        return found

    def _is_damaged(self, name: str) -> bool:
        """Return whether a file is among the damaged ones."""
        return any(f"{name} must hold" in problem for problem in self.problems)


def study_places(path: Path) -> list[Path]:
    """Return the directories of a run's supernets: `supernet`, or `supernet/50pct/stage-1` and so on.

    Args:
        path: The run directory.

    Returns:
        The directories, sorted.
    """
    files = [file for name in (LOG, JOURNAL) for file in path.glob(f"{SUPERNET}*/**/{name}")]
    return sorted({file.parent for file in files if file.parent.name != FULL_NETWORK})


def read_run(path: Path) -> RunRecord:
    """Read the directory of `cafenet run` or `cafenet.search`, as far as its files are intact.

    Args:
        path: The run directory.

    Returns:
        The records, with a sentence for each damaged file.

    Raises:
        RecipeError: If the directory holds no file of a run.
        RunFileError: If nothing in the directory is readable, or files have another format.
    """
    expect_this_format(path)
    if not any((path / file.name).is_file() for file in (RECIPE, MANIFEST, ENTRIES, RESULTS)):
        raise RecipeError(
            f"{path} must be a directory of `cafenet run` or `cafenet.search`, but has no {RECIPE.name}; give another"
        )
    problems: list[str] = []
    recipe = _recipe(path, problems)
    if problems and not any((path / file.name).is_file() for file in (MANIFEST, ENTRIES, RESULTS, SPACE)):
        raise RunFileError(problems[0])  # nothing is readable, or the directory holds no run at all
    has_manifest = (path / RECIPE.name).exists()  # which is written first
    manifest = read_what_is_left(MANIFEST, path, problems, must_exist=has_manifest) or {}
    check_recipe(path, recipe, manifest, problems)
    is_finished, places = bool(manifest.get("finished")), study_places(path)
    has_results = is_finished and ("evaluate" in manifest["seconds"] or "detector" in recipe)
    results = _results(path, recipe, problems, must_exist=has_results)
    has_space = not _is_detection(recipe, results)
    has_begun = bool(places) or (path / ENTRIES.name).exists() or results is not None
    return RunRecord(
        path=path,
        recipe=recipe,
        manifest=manifest,
        space=read_what_is_left(SPACE, path, problems, must_exist=has_space and has_begun),
        entries=read_what_is_left(ENTRIES, path, problems, must_exist=has_space and is_finished) or [],
        results=results,
        studies=[_study(path, place, problems) for place in places],
        problems=tuple(problems),
    )


def _is_detection(recipe: dict[str, Any], results: dict[str, Any] | None) -> bool:
    """Return whether a recipe or a table is that of `cafenet detect`."""
    return "detector" in recipe or "detectors" in (results or {})


def _study(path: Path, place: Path, problems: list[str]) -> StudyRecord:
    """Return what a supernet's directory holds; what was scored was trained before."""
    trials = _trials(place, problems)
    log = read_training_log(place, problems, was_trained=bool(trials))
    return StudyRecord(str(place.relative_to(path)), log, trials)


def _recipe(path: Path, problems: list[str]) -> dict[str, Any]:
    """Return the recipe; it is a problem if there is none."""
    recipe: dict[str, Any] = read_what_is_left(RECIPE, path, problems, must_exist=True) or {}
    return recipe


def _results(path: Path, recipe: dict[str, Any], problems: list[str], *, must_exist: bool) -> dict[str, Any] | None:
    """Return the table of a run, or of a detection run if the directory holds one."""
    of_detection: list[str] = []
    found: dict[str, Any] | None = read_what_is_left(DETECTION_RESULTS, path, of_detection, must_exist=must_exist)
    if found is None and "detector" in recipe:
        problems += of_detection
    elif found is None:
        found = read_what_is_left(RESULTS, path, problems, must_exist=must_exist)
    return found


def _trials(place: Path, problems: list[str]) -> list[TrialRecord]:
    """Return the trials of a study; a journal that cannot be read is added to the problems."""
    try:
        return read_trials(place / JOURNAL)
    except StoreError as error:
        problems.append(str(error))
        return []


def read_trials(journal: Path) -> list[TrialRecord]:
    """Read the finished trials of a study.

    Args:
        journal: The journal file, which may be missing.

    Returns:
        The trials, oldest first.

    Raises:
        StoreError: If the file is no journal.
    """
    if not journal.is_file():
        return []
    storage = open_storage(journal, is_read_only=True)
    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    found = []
    for study in storage.get_all_studies():
        for trial in storage.get_all_trials(study._study_id, deepcopy=False, states=states):
            score = trial.user_attrs.get("score")
            if score is None or trial.value is None:
                continue
            found.append(
                TrialRecord(
                    widths={name: int(width) for name, width in trial.params.items()},
                    value=float(trial.value),
                    costs=score["costs"],
                    search=score["search"],
                    label=score["label"],
                    is_complete=trial.state == optuna.trial.TrialState.COMPLETE,
                    is_exact=score["is_exact"],
                    seconds=score["seconds"],
                )
            )
    return found
