"""A recipe for each test, and one finished run for all that only look at it."""

import functools
import sys
from pathlib import Path

import pytest
import torch

from cafenet.cli.main import main
from cafenet.runs import recipe_files as recipes
from tests.helpers.tiny_run import recipe_file

_parser = functools.cache(recipes.recipe_parser)


@pytest.fixture(autouse=True)
def _as_in_a_new_process(monkeypatch: pytest.MonkeyPatch):
    """The command adds the working directory to where modules are looked for; its parser is built once for all."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(recipes, "recipe_parser", _parser)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return recipe_file(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished run, beside its recipe; tests that change it take a copy."""
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("finished")
    assert main(["run", str(recipe_file(place)), "--output", str(place / "run"), "--quiet"]) == 0
    return place / "run"
