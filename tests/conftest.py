"""Every test starts from the same random numbers and runs on one thread; assertions of helpers are explained, too."""

from pathlib import Path

import pytest
import torch

pytest.register_assert_rewrite("tests.helpers")


@pytest.fixture(autouse=True)
def _same_numbers_on_one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run of the tiny recipe, two seeds, made by the command."""
    from cafenet.cli.main import main
    from tests.helpers.tiny_run import recipe_file

    place = tmp_path_factory.mktemp("report")
    recipe = recipe_file(place, description="tiny <b>& bold</b>")
    output = place / "whole"
    assert main(["run", str(recipe), "--output", str(output), "--finetune.seeds", "[0,1]", "--quiet"]) == 0
    return output
