import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "runs"))
from tiny import recipe_file

from cafenet.cli.main import main


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A whole run of the tiny recipe, two seeds, made by the command."""
    place = tmp_path_factory.mktemp("report")
    recipe = recipe_file(place, description="tiny <b>& bold</b>")
    output = place / "whole"
    assert main(["run", str(recipe), "--output", str(output), "--finetune.seeds", "[0,1]", "--quiet"]) == 0
    return output
