"""A recipe for each test, and one finished run for all that only look at it."""

import sys
from pathlib import Path

import pytest
import torch

from cafenet.cli import main

pytest.register_assert_rewrite("tiny")

from tiny import recipe_file  # noqa: E402 - after the line that explains its assertions


@pytest.fixture(autouse=True)
def _same_path_after(monkeypatch: pytest.MonkeyPatch):
    """The command adds the working directory to where modules are looked for."""
    monkeypatch.setattr(sys, "path", list(sys.path))


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
