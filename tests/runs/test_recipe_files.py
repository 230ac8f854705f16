"""Recipes: one typed tree reads YAML and flags, and a mistake in either names its key."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cafenet.cli.main import main
from cafenet.data.augment import Augmentation
from cafenet.detection.recipe import load_detection_recipe
from cafenet.errors import RecipeError
from cafenet.runs.recipe import BaselinesConfig, Recipe, Reference
from cafenet.runs.recipe_files import load_recipe, to_yaml
from cafenet.runs.recipe_texts import recipe_text, shipped_recipes
from cafenet.training.checkpoint import differences
from cafenet.training.config import TrainConfig


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return str(path)


def test_an_empty_recipe_has_every_default(tmp_path):
    assert load_recipe(written(tmp_path, "")) == Recipe()


def test_values_of_every_kind(tmp_path):
    text = """
    description: mine
    loss: bce
    model: {name: "net.py:build", options: {width: 0.5, layers: [1, 2]}, input_size: [3, 8, 8], freeze: [head]}
    data: {augmentation: {padding: 2, flip: true}, num_train: 100}
    supernet: {min_width: 0.25, r: 2}
    train: {epochs: 2, optimizer: {lr: 0.2, options: {nesterov: true}}, schedule: {name: step, milestones: [1, 2]}}
    budget: "75%,50%"
    algorithms: [evolution, random]
    evolution: {population: 5}
    band: [0.9, 1]
    finetune: {seeds: [1, 2], teacher: original, distill: {weight: 0.9}}
    baselines: {random_widths: 3}
    stages: {num_stages: 3, carry_weights: true}
    reference: [{method: TAS, accuracy: "93.2"}]
    """
    recipe = load_recipe(written(tmp_path, text))
    assert recipe.description == "mine"
    assert recipe.loss == "bce"
    assert recipe.model.name == "net.py:build"
    assert recipe.model.options == {"width": 0.5, "layers": [1, 2]}
    assert recipe.model.input_size == (3, 8, 8)
    assert recipe.model.freeze == ("head",)
    assert recipe.data.augmentation == Augmentation(padding=2, flip=True)
    assert recipe.data.num_train == 100
    assert (recipe.supernet.min_width, recipe.supernet.r) == (0.25, 2)
    assert (recipe.train.epochs, recipe.train.optimizer.lr) == (2, 0.2)
    assert recipe.train.optimizer.options == {"nesterov": True}
    assert recipe.train.schedule.milestones == (1, 2)
    assert recipe.algorithms == ("evolution", "random")
    assert recipe.evolution.population == 5
    assert recipe.band == (0.9, 1)
    assert recipe.finetune.seeds == (1, 2)
    assert (recipe.finetune.teacher, recipe.finetune.distill.weight) == ("original", 0.9)
    assert recipe.baselines == BaselinesConfig(random_widths=3)
    assert (recipe.stages.num_stages, recipe.stages.carry_weights) == (3, True)
    assert recipe.reference == [Reference("TAS", accuracy="93.2")]
    assert recipe.finetune.training(0) == TrainConfig()  # the supernet's options are not the final models'


def test_min_width_keeps_its_kind(tmp_path):
    """1 is one channel and 1.0 is all of them."""
    for text, kind in (("1", int), ("1.0", float)):
        assert type(load_recipe(written(tmp_path, f"supernet: {{min_width: {text}}}")).supernet.min_width) is kind


def test_flags_win_over_the_file(tmp_path):
    path = written(tmp_path, "seed: 3\nbudget: 40%\nevolution: {population: 7}\n")
    recipe = load_recipe(path, ["--budget", "25%", "--train.epochs=3", "--finetune.seeds", "[4, 5]"])
    assert recipe.budget == "25%"
    assert (recipe.evolution.population, recipe.seed) == (7, 3)
    assert (recipe.train.epochs, recipe.finetune.seeds) == (3, (4, 5))
    assert load_recipe(path, ["--model.options", "{width: 0.5}"]).model.options == {"width": 0.5}


def test_a_flag_into_options_keeps_the_others(tmp_path):
    path = written(tmp_path, "model: {options: {width: 0.5, depth: 3}}")
    assert load_recipe(path, ["--model.options.width", "0.25"]).model.options == {"width": 0.25, "depth": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("supernt: {r: 1}", "an unknown key 'supernt'; did you mean supernet?"),
        ("buget: 50%", "an unknown key 'buget'; did you mean budget?"),
        ("trend: {sample: 3}", "an unknown key 'trend.sample'; did you mean samples?"),
        ("train: {optimizer: {learning_rate: 1}}", "an unknown key 'train.optimizer.learning_rate'; it may be one of"),
        ("finetune: {epoch: 3}", "an unknown key 'finetune.epoch'; did you mean epochs?"),
        ("reference: [{methd: TAS}]", "reference"),
        ("1: 2", "an unknown key '1'"),
    ],
)
def test_an_unknown_key_is_named_with_the_near_miss(text, message, tmp_path):
    with pytest.raises(RecipeError) as caught:
        load_recipe(written(tmp_path, text))
    assert message in str(caught.value)
    assert "mine.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "place"), [("train: 3", "3.*'train'"), ("train: {optimizer: }", "None.*'train.optimizer'")]
)
def test_a_section_without_keys(text, place, tmp_path):
    with pytest.raises(RecipeError, match=f"mine.yaml has {place}"):
        load_recipe(written(tmp_path, text))


def test_all_unknown_keys_are_said_at_once(tmp_path):
    with pytest.raises(RecipeError, match=r"'sed'; did you mean seed\?; .*'model.nam'; did you mean name\?"):
        load_recipe(written(tmp_path, "sed: 1\nmodel: {nam: x}"))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("train: {epochs: many}", "train.epochs"),
        ("train: {batch_size: 1.5}", "train.batch_size"),
        ("algorithms: [evolutoin]", "algorithms"),
        ("budget: [50]", "budget"),
        ("baselines: {fixed: maybe}", "baselines.fixed"),
        ("finetune: {seeds: [a]}", "finetune.seeds"),
        ("loss: mse", "loss"),
        ("model: {input_size: 3}", "model.input_size"),
    ],
)
def test_a_wrong_type_names_the_key(text, key, tmp_path):
    with pytest.raises(RecipeError) as caught:
        load_recipe(written(tmp_path, text))
    message = str(caught.value)
    assert "mine.yaml" in message
    assert f'"{key}"' in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--buget", "25%"], "there is no flag --buget; did you mean --budget?"),
        (["--train.epoch=3"], "there is no flag --train.epoch; did you mean --train.epochs?"),
        (["--xyzzy=1"], "there is no flag --xyzzy"),
        (["--train.epochs", "many"], '"train.epochs"'),
        (["stray"], "stray"),
        (["--train.epochs"], "train.epochs"),
    ],
)
def test_a_wrong_flag(flags, message, tmp_path):
    with pytest.raises(RecipeError) as caught:
        load_recipe(written(tmp_path, ""), flags)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_that_a_section_refuses_are_errors_of_ours(tmp_path):
    with pytest.raises(Exception, match=r"stages\.num_stages must be a whole number from 1 to 100, but is 0") as caught:
        load_recipe(written(tmp_path, "stages: {num_stages: 0}"))
    assert "CafeNetError" in [kind.__name__ for kind in type(caught.value).__mro__]


@pytest.mark.parametrize("text", ["a: [1", "a: b: c", "\tmodel: x", "model: {name: x", "@"])
def test_broken_yaml(text, tmp_path):
    with pytest.raises(RecipeError, match=r"the recipe .*mine.yaml must be YAML, but: .*line \d") as caught:
        load_recipe(written(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[1, 2]", "just words", "3"])
def test_yaml_without_sections(text, tmp_path):
    with pytest.raises(RecipeError, match=r"mine.yaml must hold sections \(model, data, train, ...\), but is"):
        load_recipe(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(RecipeError, match=r"absent.yaml must be a readable file, but: No such file"):
        load_recipe(str(tmp_path / "absent.yaml"))
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(RecipeError, match="must be a readable file, but: Is a directory"):
        load_recipe(str(tmp_path / "folder.yaml"))


def test_a_binary_file_is_no_recipe(tmp_path):
    (tmp_path / "mine.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(RecipeError, match=r"mine.yaml must be a readable file, but: it is not text"):
        load_recipe(str(tmp_path / "mine.yaml"))


def test_a_shipped_recipe_by_a_wrong_name():
    with pytest.raises(RecipeError, match=r"one of the shipped ones .* but got 'dem'; did you mean demo"):
        load_recipe("dem")
    with pytest.raises(RecipeError, match=r"but got 'qqqqqq'$"):
        load_recipe("qqqqqq")


@pytest.mark.parametrize("name", [None, "demo"])
def test_to_yaml_and_back(name, tmp_path):
    recipe = Recipe() if name is None else load_recipe(name)
    recipe = replace(recipe, reference=[Reference("TAS", budget="50%")], description="größer: [1]")
    text = to_yaml(recipe)
    assert load_recipe(written(tmp_path, text)) == recipe
    assert list(yaml.safe_load(text)) == [field for field in Recipe.__dataclass_fields__]


def test_differences_name_every_place():
    before = {"a": 1, "b": {"c": [1, 2], "d": 3}, "gone": 4}
    now = {"a": 1, "b": {"c": [1, 3], "d": 3}, "new": 5}
    assert differences(before, now) == [
        "b.c was [1, 2], is [1, 3]",
        "gone was 4, is None",
        "new was None, is 5",
    ]
    assert differences(before, before) == []


def test_the_command_lists_every_shipped_recipe(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "demo" in shipped_recipes()
    for name, description in shipped_recipes().items():
        assert description
        (line,) = [line for line in lines if line.split()[0] == name]
        assert description in line


def test_a_narrow_terminal_still_shows_whole_names(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["recipes"]) == 0
    words = capsys.readouterr().out.split()
    assert set(shipped_recipes()) <= set(words)


def test_the_command_shows_one_to_start_from(capsys, tmp_path):
    assert main(["recipes", "show", "demo"]) == 0
    shown = capsys.readouterr().out
    assert shown == recipe_text("demo")
    assert load_recipe(written(tmp_path, shown)) == load_recipe("demo")


def test_showing_an_unknown_one_is_one_line(capsys):
    assert main(["recipes", "show", "demmo"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: a recipe must be")
    assert captured.err.endswith("did you mean demo?\n")
    assert captured.err.count("\n") == 1


def test_help_shows_every_key_with_its_sentence(capsys):
    assert main(["run", "--help-recipe"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    for flag in ("--budget", "--finetune.optimizer.lr", "--data.augmentation.flip", "--stages.alpha"):
        assert flag in output
    assert "bce is for multi-label targets" in output
    assert "starts each stage from the weights of the previous one" in output


def test_no_recipe_at_all(capsys):
    assert main(["run"]) == 2
    assert capsys.readouterr().err == "error: give a recipe, a .yaml file or one of `cafenet recipes`\n"


@pytest.mark.parametrize("command", ["inspect", "recipes", "export"])
def test_flags_of_recipes_are_for_runs_only(command, capsys):
    arguments = {"inspect": ["m"], "recipes": [], "export": ["run", "file"]}[command]
    with pytest.raises(SystemExit) as exit_info:
        main([command, *arguments, "--train.epochs=3"])
    assert exit_info.value.code == 2
    assert "unrecognized arguments: --train.epochs" in capsys.readouterr().err


def test_a_recipe_of_the_other_command_is_named(tmp_path):
    path = written(tmp_path, "backbones: {run: runs/a}\ndetector: {framework: retinanet}\n")
    with pytest.raises(RecipeError, match=r"recipe of `cafenet run` is needed here, but .* one of `cafenet detect`"):
        load_recipe(path)
    path = written(tmp_path, recipe_text("demo"))
    with pytest.raises(RecipeError, match=r"recipe of `cafenet detect` is needed here, but .* one of `cafenet run`"):
        load_detection_recipe(path)


def test_the_title_is_true_where_flags_replace_what_it_says():
    recipe = load_recipe("demo", ["--model.name", "./net.py:Net", "--budget=25%"])
    assert recipe.description == "./net.py:Net on fashion at 25%"
    assert load_recipe("demo", ["--train.epochs", "3"]).description == load_recipe("demo").description
    assert load_recipe("demo", ["--budget", "25%", "--description", "Mine"]).description == "Mine"
