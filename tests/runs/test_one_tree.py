"""Python, recipes and flags ask for the same things under the same names, with the same defaults."""

import inspect
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import yaml

import cafenet
from cafenet.cli.main import main
from cafenet.pipeline.lengths import Given, algorithm_of, sampling_of, supernet_of
from cafenet.pipeline.options import SearchOptions
from cafenet.runs.recipe import Recipe
from cafenet.runs.recipe_files import as_document, load_recipe
from cafenet.searching.search_config import SearchConfig
from cafenet.training.config import TrainConfig

OTHERS = {
    "algorithm": "a recipe may name several (`algorithms`), with the options of each under its own name",
    "stages": "a recipe has one supernet for all of its budgets, so one stage; a search takes what its budget needs",
}
"""Options of a search that a recipe has otherwise, with the reason."""
ALSO = ("budget", "loss", "metric", "seed")
"""Parameters of `cafenet.search` that are keys of a recipe, too."""


def defaults(kind: type) -> dict[str, Any]:
    """The default of every field."""
    made = kind()
    return {each.name: getattr(made, each.name) for each in fields(made)}


def leaves(value: Any, place: str = "") -> dict[str, Any]:
    """The values of a tree of dataclasses by key: `train.optimizer.lr`."""
    if not is_dataclass(value):
        return {place: value}
    found = {}
    for each in fields(value):
        found.update(leaves(getattr(value, each.name), f"{place}.{each.name}".lstrip(".")))
    return found


def test_options_of_a_search_are_keys_of_a_recipe_with_the_same_defaults():
    recipe, options = defaults(Recipe), defaults(SearchOptions)
    resolved = {"supernet": supernet_of(SearchOptions(), False), "sampling": sampling_of(SearchOptions(), False)}
    found = {name: resolved.get(name, value) for name, value in options.items() if name not in OTHERS}
    assert found == {name: recipe[name] for name in found}
    assert OTHERS.keys() <= options.keys()


def test_the_call_asks_as_a_recipe_does():
    parameters = inspect.signature(cafenet.search).parameters
    recipe = defaults(Recipe)
    assert {name: parameters[name].default for name in ALSO} == {name: recipe[name] for name in ALSO}
    assert {"train", "finetune"} <= parameters.keys() & recipe.keys()


def test_large_data_have_the_trainings_and_the_algorithm_of_a_recipe():
    """100,000 examples have 390 steps per epoch, so nothing is made longer or smaller for them."""
    given = Given(None, None, None, None, "normal", "supernet", 0, num_examples=100_000)
    recipe = Recipe()
    assert given.trainings(is_trained=False) == (recipe.train, recipe.finetune.training(0))
    assert recipe.train == TrainConfig()
    assert algorithm_of(SearchOptions(), "normal") == recipe.trend


def test_a_search_on_one_supernet_has_the_same_defaults():
    options, config = defaults(SearchOptions), defaults(SearchConfig)
    assert {name: options[name] for name in config if name != "seed"} == {
        name: value for name, value in config.items() if name != "seed"
    }
    assert config["seed"] == inspect.signature(cafenet.search).parameters["seed"].default


@pytest.mark.parametrize("call", [cafenet.search, cafenet.search_widths], ids=lambda call: call.__name__)
def test_every_call_means_half_of_the_flops_if_nothing_is_said(call):
    assert inspect.signature(call).parameters["budget"].default == Recipe().budget == "50%"


def test_every_key_of_a_recipe_is_a_flag(capsys):
    assert main(["run", "--help-recipe"]) == 0
    shown = capsys.readouterr().out
    assert [key for key in leaves(Recipe()) if f"--{key} " not in shown and f"--{key}\n" not in shown] == []


def test_a_recipe_without_keys_and_one_with_all_of_them_are_the_defaults(tmp_path):
    (tmp_path / "nothing.yaml").write_text("{}")
    (tmp_path / "all.yaml").write_text(yaml.safe_dump(as_document(Recipe())))
    nothing, everything = (load_recipe(str(tmp_path / f"{name}.yaml")) for name in ("nothing", "all"))
    assert replace(nothing, description="") == replace(everything, description="") == Recipe()


def test_flags_reach_the_keys_of_their_names(tmp_path):
    (tmp_path / "empty.yaml").write_text("{}")
    flags = ["--train.optimizer.lr", "0.3", "--supernet.r", "1", "--min_usage", "0.5", "--finetune.start", "supernet"]
    recipe = load_recipe(str(tmp_path / "empty.yaml"), flags)
    assert (recipe.train.optimizer.lr, recipe.supernet.r, recipe.min_usage, recipe.finetune.start) == (
        *(0.3, 1, 0.5),
        "supernet",
    )
