"""What lies in a run directory, read for people to look at; whatever is missing is said, not an error."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
import yaml

from cafenet.errors import RecipeError
from cafenet.searching.storage import open_storage
from cafenet.train import FULL_NETWORK

JOURNAL = "trials.journal"


@dataclass(frozen=True)
class TrialRecord:
    """One scored width."""

    widths: dict[str, int]
    value: float
    costs: dict[str, float]
    search: str
    label: str
    is_complete: bool
    is_exact: bool
    seconds: float


@dataclass(frozen=True)
class StudyRecord:
    """One supernet: its training log and its scored widths."""

    name: str
    log: list[dict[str, Any]]
    trials: list[TrialRecord]


@dataclass(frozen=True)
class RunRecord:
    """A run as far as it got."""

    path: Path
    recipe: dict[str, Any]
    manifest: dict[str, Any]
    space: dict[str, Any] | None
    entries: list[dict[str, Any]]
    results: dict[str, Any] | None
    studies: list[StudyRecord] = field(default_factory=list)
    title: str = ""

    @property
    def name(self) -> str:
        """The title, or the directory's name."""
        return self.title or self.path.resolve().name

    @property
    def is_call(self) -> bool:
        """Whether `cafenet.search` made it, which has no test data and no baselines."""
        return bool(self.recipe.get("called"))

    @property
    def is_detection(self) -> bool:
        """Whether `cafenet detect` made it."""
        return "detector" in self.recipe

    def missing(self) -> list[str]:
        """What the run has not come to, in words."""
        found = []
        stopped = self.manifest.get("stopped")
        if stopped:
            found.append(f"the step {stopped['step']} ended with: {stopped['reason']}")
        if not any(study.log for study in self.studies):
            found.append("no supernet has been trained yet")
        if not any(study.trials for study in self.studies):
            found.append("no width has been scored yet")
        if not self.entries:
            found.append("the search has not finished")
        if self.results is None and not self.is_call:
            found.append("the final models are not all trained, so there is no table")
        return found


def study_places(path: Path) -> list[Path]:
    """The directories of a run's supernets: `supernet*` of `cafenet run`, `stage-*` of `cafenet.search`."""
    return sorted(
        {
            file.parent
            for name in ("log.jsonl", JOURNAL)
            for pattern in ("supernet*/**", "stage-*")
            for file in path.glob(f"{pattern}/{name}")
            if file.parent.name != FULL_NETWORK
        }
    )


def read_run(path: Path) -> RunRecord:
    """Read the directory of `cafenet run` or `cafenet.search`; only one without either's description is an error."""
    return RunRecord(
        path=path,
        recipe=_recipe(path),
        manifest=_json(path / "manifest.json") or {},
        space=_json(path / "space.json"),
        entries=_json(path / "entries.json") or [],
        results=_json(path / "results.json"),
        studies=[
            StudyRecord(str(place.relative_to(path)), _lines(place / "log.jsonl"), read_trials(place / JOURNAL))
            for place in study_places(path)
        ],
    )


def _recipe(path: Path) -> dict[str, Any]:
    if (path / "recipe.yaml").is_file():
        try:
            recipe = yaml.safe_load((path / "recipe.yaml").read_text())
        except yaml.YAMLError:
            recipe = None
        if not isinstance(recipe, dict):
            raise RecipeError(f"{path / 'recipe.yaml'} must be the recipe of a run, but is not")
        return recipe
    called = _json(path / "search.json")
    if called is None:
        raise RecipeError(
            f"{path} must be a run directory, but has no recipe.yaml of `cafenet run` and no search.json of "
            "`cafenet.search`"
        )
    settings = dict(called["settings"])
    return {
        "description": called["description"],
        "supernet": settings["supernet"],
        "train": settings["training"],
        "stages": settings.pop("stages", {}),
        "search": {"budget": called["budget"], "metric": called["metric"], **settings},
        "called": True,
    }


def read_trials(journal: Path) -> list[TrialRecord]:
    """The finished trials of a study, the oldest first."""
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


def _json(path: Path) -> Any:
    return json.loads(path.read_text()) if path.is_file() else None


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log; one that is being written is left out."""
    if not path.is_file():
        return []
    lines = []
    for line in path.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines
