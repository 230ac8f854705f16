"""`paper: true`: the paper's algorithm by one key of a recipe."""

import pytest

from cafenet.errors import RecipeError
from cafenet.pipeline.paper import value_at
from cafenet.runs.paper import PAPER
from cafenet.runs.recipe_files import load_recipe, to_yaml

EXPERIMENTS = ("imagenet-mobilenet-v2", "imagenet-resnet50", "cifar10-vgg", "cifar10-mobilenet-v2")


def recipe_of(tmp_path, text: str, *flags: str):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return load_recipe(str(path), flags)


def test_one_key_sets_everything_that_the_paper_decides(tmp_path):
    recipe = recipe_of(tmp_path, "paper: true\n")
    assert {key: value_at(recipe, key) for key in PAPER} == PAPER
    assert recipe.algorithms == ("evolution", "random")
    assert recipe.evolution.population * recipe.evolution.iterations == recipe.random.samples == 2000


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_shipped_experiments_say_the_same(name: str):
    """The recipes of the paper were written by hand, key by key, so they check the table."""
    recipe = load_recipe(name)
    assert {key: value_at(recipe, key) for key in PAPER} == PAPER


def test_a_recipe_without_the_key_keeps_the_defaults(tmp_path):
    assert recipe_of(tmp_path, "budget: 25%\n").supernet.r == 0


def test_what_the_paper_varies_stays_free(tmp_path):
    recipe = recipe_of(tmp_path, "paper: true\nsupernet: {beta: 2.0}\nstages: {num_stages: 3}\nalgorithms: [random]\n")
    assert (recipe.supernet.beta, recipe.stages.num_stages, recipe.algorithms) == (2.0, 3, ("random",))


def test_the_flag_does_the_same(tmp_path):
    assert recipe_of(tmp_path, "budget: 25%\n", "--paper", "true").supernet.choice == "exact"


def test_a_saved_recipe_reads_back_as_it_was(tmp_path):
    recipe = recipe_of(tmp_path, "paper: true\n")
    assert recipe_of(tmp_path, to_yaml(recipe)) == recipe


def test_contradictions_are_refused_all_at_once(tmp_path):
    with pytest.raises(RecipeError) as error:
        recipe_of(tmp_path, "paper: true\nsupernet: {r: 2}\nsampling: {full_share: 0.5}\nalgorithms: [greedy]\n")
    assert str(error.value) == (
        "paper: supernet.r is 2, but the paper's is 1; sampling.full_share is 0.5, but the paper's is 0.0; algorithms "
        "has greedy, but the paper's are evolution and random; leave these keys out, or set paper: false"
    )
