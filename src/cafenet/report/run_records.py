"""The content of a run directory, read for people to look at; missing parts are named and are no error."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cafenet.common.read_files import read_what_is_left
from cafenet.common.run_files import DETECTION_RESULTS, ENTRIES, GAIN, MANIFEST, RECIPE, RESULTS, SPACE
from cafenet.common.run_places import (
    FULL_NETWORK,
    JOURNAL,
    LOG,
    MODEL_CHECKPOINT,
    SUPERNET,
    expect_this_format,
    maker_of,
    model_place,
    slug,
)
from cafenet.errors import RecipeError, RunFileError, StoreError
from cafenet.pipeline.entries import fault_of_entries
from cafenet.report.file_checks import check_journal, check_recipe, check_slim_file, read_training_log
from cafenet.report.trials import TrialRecord, read_study


@dataclass(frozen=True)
class StudyRecord:
    """One supernet: its training log and its scored widths."""

    name: str
    """Directory of the supernet, relative to the run."""
    log: list[dict[str, Any]]
    """Lines of the training log."""
    trials: list[TrialRecord]
    """The scored widths, oldest first."""
    warning: str = ""
    """Warnings of the search, for example that scores look like chance."""


@dataclass(frozen=True)
class TrainingRecord:
    """The training of one finished model."""

    method: str
    """Name of the method, for example "Uniform"."""
    budget: str
    """The budget; empty for the original."""
    log: list[dict[str, Any]]
    """Lines of the training log."""


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
    gains: list[dict[str, Any]] = field(default_factory=list)
    """The finished models of each budget side by side, in the order of the entries; a run keeps a table instead."""
    trainings: list[TrainingRecord] = field(default_factory=list)
    """The trainings of the finished models."""

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

    @property
    def warnings(self) -> list[str]:
        """Warnings of the searches, each once."""
        return list(dict.fromkeys(study.warning for study in self.studies if study.warning))

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
    space = read_what_is_left(SPACE, path, problems, must_exist=has_space and has_begun)
    entries = _entries(path, space, problems, must_exist=has_space and is_finished)
    studies = [_study(path, place, manifest, problems) for place in places]
    gains = [read_what_is_left(GAIN, _place_of(path, recipe, each), problems) for each in entries]
    trainings = _trainings(path, recipe, entries, problems)
    for row in (results or {}).get("rows", []):
        check_slim_file(_place_of(path, recipe, row), problems)
    return RunRecord(
        path=path,
        recipe=recipe,
        manifest=manifest,
        space=space,
        entries=entries,
        results=results,
        studies=studies,
        problems=tuple(problems),
        gains=[each["gain"] for each in gains if each is not None],
        trainings=trainings,
    )


def _entries(
    path: Path, space: dict[str, Any] | None, problems: list[str], *, must_exist: bool
) -> list[dict[str, Any]]:
    """Return what the methods found, unless it is about another model than `space.json`."""
    content = read_what_is_left(ENTRIES, path, problems, must_exist=must_exist)
    if content is None:
        return []
    groups = None if space is None else {group["name"]: group["channels"] for group in space["groups"]}
    fault = fault_of_entries(content, groups)
    if fault:
        problems.append(f"{path / ENTRIES.name} must hold {ENTRIES.holds}, but {fault}; {ENTRIES.remedy}")
        return []
    found: list[dict[str, Any]] = content["entries"]
    return found


def _trainings(
    path: Path, recipe: dict[str, Any], entries: list[dict[str, Any]], problems: list[str]
) -> list[TrainingRecord]:
    """Return the trainings of the finished models with the first seed; a search has Uniform beside its entries."""
    models = [(each["method"], each["budget"]) for each in entries]
    models += [("Uniform", budget) for _, budget in models if budget]
    places = {key: _place_of(path, recipe, {"method": key[0], "budget": key[1]}) for key in models}
    logs = {key: _newest_log(place, problems) for key, place in places.items()}
    return [TrainingRecord(method, budget, log) for (method, budget), log in logs.items() if len(log) > 1]


def _place_of(path: Path, recipe: dict[str, Any], entry: dict[str, Any]) -> Path:
    """Return the directory of an entry's model with the first seed."""
    seeds = recipe.get("finetune", {}).get("seeds") or [recipe.get("seed", 0)]
    return model_place(path, slug(entry["budget"], entry["method"]), seeds[0])


def _newest_log(place: Path, problems: list[str]) -> list[dict[str, Any]]:
    """Return the newest log of a training; one that began with something else has a directory beside it."""
    found = [each for name in (place.name, f"{place.name}-*") for each in place.parent.glob(f"{name}/{LOG}")]
    newest = max(found, key=lambda each: each.stat().st_mtime, default=place / LOG).parent
    return read_training_log(newest, problems, was_trained=(newest / MODEL_CHECKPOINT).exists())


def _is_detection(recipe: dict[str, Any], results: dict[str, Any] | None) -> bool:
    """Return whether a recipe or a table is that of `cafenet detect`."""
    return "detector" in recipe or "detectors" in (results or {})


def _study(path: Path, place: Path, manifest: dict[str, Any], problems: list[str]) -> StudyRecord:
    """Return what a supernet's directory holds; what was scored was trained before."""
    try:
        trials, warning = read_study(place / JOURNAL)
        check_journal(path, place / JOURNAL, manifest, problems)
    except StoreError as error:
        problems.append(str(error))
        trials, warning = [], ""
    log = read_training_log(place, problems, was_trained=bool(trials))
    return StudyRecord(str(place.relative_to(path)), log, trials, warning)


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
