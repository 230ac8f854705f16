"""What `test_torchrun` starts under torchrun: the first step of a run, and one that several processes cannot do."""

import sys
from pathlib import Path

import torch

from cafenet.errors import RecipeError
from cafenet.runs.recipe_files import load_recipe
from cafenet.runs.run_recipe import run_recipe

if __name__ == "__main__":
    torch.set_num_threads(1)
    place = Path(sys.argv[1])
    recipe = load_recipe(str(place / "tiny.yaml"))
    run_recipe(recipe, place / "run", until="train", quiet=True)
    try:
        run_recipe(recipe, place / "run", until="search", quiet=True)
    except RecipeError as error:
        (place / "refused.txt").write_text(str(error))
