"""A run's directory: one recipe, files written in one move, and nothing in the way overwritten."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cafenet.common.files import write_json, write_text
from cafenet.errors import RecipeError, RunFileError
from cafenet.pipeline import run_directory
from cafenet.runs.directory import RecipeDirectory
from cafenet.runs.recipe import Recipe
from cafenet.runs.recipe_files import load_recipe


def manifest(path: Path) -> dict:
    return json.loads((path / "manifest.json").read_text())


def test_a_new_directory_holds_recipe_and_manifest(tmp_path):
    path = tmp_path / "deep" / "run"
    place = RecipeDirectory(path, replace(Recipe(), seed=7), ["cafenet", "run"])
    assert {each.name for each in path.iterdir()} == {"recipe.yaml", "manifest.json"}
    assert (manifest(path)["seed"], manifest(path)["command"]) == (7, ["cafenet", "run"])
    assert manifest(path)["finished"] is None
    place.finish()
    assert manifest(path)["finished"].endswith("Z")


def test_the_same_recipe_continues(tmp_path):
    RecipeDirectory(tmp_path / "run", Recipe(), ["first"])
    before = manifest(tmp_path / "run")
    RecipeDirectory(tmp_path / "run", Recipe(), ["second"])
    assert manifest(tmp_path / "run") == before


def test_another_recipe_is_refused_and_changes_nothing(tmp_path):
    RecipeDirectory(tmp_path / "run", Recipe(), [])
    before = (tmp_path / "run" / "recipe.yaml").read_text()
    with pytest.raises(
        RecipeError, match=r"holds a run of another recipe \(seed was 0, is 1\); give another directory"
    ):
        RecipeDirectory(tmp_path / "run", replace(Recipe(), seed=1), [])
    assert (tmp_path / "run" / "recipe.yaml").read_text() == before


def with_seeds(*seeds: int) -> Recipe:
    return replace(Recipe(), finetune=replace(Recipe().finetune, seeds=seeds))


def test_more_seeds_continue_a_finished_run(tmp_path):
    RecipeDirectory(tmp_path / "run", with_seeds(0, 1), []).finish()
    RecipeDirectory(tmp_path / "run", with_seeds(2, 0, 1), [])
    assert manifest(tmp_path / "run")["finished"] is None
    assert load_recipe(str(tmp_path / "run" / "recipe.yaml")).finetune.seeds == (2, 0, 1)


@pytest.mark.parametrize("seeds", [(0,), (0, 2), (2, 3)])
def test_fewer_or_other_seeds_are_another_recipe(seeds, tmp_path):
    RecipeDirectory(tmp_path / "run", with_seeds(0, 1), [])
    with pytest.raises(RecipeError, match=r"another recipe \(finetune.seeds was \[0, 1\], is "):
        RecipeDirectory(tmp_path / "run", with_seeds(*seeds), [])


def test_more_seeds_do_not_hide_another_difference(tmp_path):
    RecipeDirectory(tmp_path / "run", with_seeds(0), []).finish()
    with pytest.raises(RecipeError, match=r"another recipe \(seed was 0, is 1\)"):
        RecipeDirectory(tmp_path / "run", replace(with_seeds(0, 1), seed=1), [])
    assert manifest(tmp_path / "run")["finished"] is not None


def test_time_is_added_up(tmp_path, monkeypatch):
    place = RecipeDirectory(tmp_path / "run", Recipe(), [])
    clock = iter([1.0, 3.5, 10.0, 11.25])
    monkeypatch.setattr(run_directory.time, "monotonic", lambda: next(clock))
    with place.timed("train"):
        pass
    assert manifest(tmp_path / "run")["seconds"] == {"train": 2.5}
    with pytest.raises(ZeroDivisionError), place.timed("train"):
        _ = 1 / 0
    assert manifest(tmp_path / "run")["seconds"] == {"train": 3.75}


@pytest.mark.parametrize("below", ["", "run"])
def test_a_file_in_the_directorys_place(below, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        RecipeError, match=r"the run directory .*file.* must be writable, but: .*; give another --output"
    ):
        RecipeDirectory(tmp_path / "file" / below, Recipe(), [])
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("text", ["a: [1", "pancakes", "", "[1, 2]"])
def test_another_programs_recipe_is_left_alone(text, tmp_path):
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(RunFileError, match=r"recipe.yaml must hold the recipe of a run, but .*; put this run's own"):
        RecipeDirectory(tmp_path, Recipe(), [])
    assert (tmp_path / "recipe.yaml").read_text() == text
    assert len(list(tmp_path.iterdir())) == 1


def test_a_write_that_fails_keeps_the_old_file(tmp_path, monkeypatch):
    write_json(tmp_path / "a.json", {"a": 1})

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_text(tmp_path / "a.json", "half of")
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_the_git_revision_is_that_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    RecipeDirectory(tmp_path / "outside", Recipe(), [])
    assert manifest(tmp_path / "outside")["git_revision"] is None
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *command], check=True, cwd=tmp_path)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=tmp_path).stdout.strip()
    RecipeDirectory(tmp_path / "inside", Recipe(), [])
    assert manifest(tmp_path / "inside")["git_revision"] == f"{head}+"  # the run directories are new files
