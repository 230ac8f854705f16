"""A whole run: all that it writes, the same table from the same seed, and nothing done twice."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from torch.utils.flop_counter import FlopCounterMode

import cafenet
from cafenet.cli.main import main
from cafenet.common.seals import SEAL
from cafenet.runs import final_models as finals
from cafenet.runs.recipe_files import load_recipe
from cafenet.runs.run_recipe import run_recipe
from cafenet.runs.workload import Workload
from cafenet.scoring.evaluation import evaluate
from cafenet.scoring.scorer import Scorer
from cafenet.supernet import trainer
from tests.helpers.tiny_run import FIXED, FULL_FLOPS, ORIGINAL, OURS, UNIFORM, contents, num_steps, refused, row, run
from tests.helpers.tiny_run import without_latency as timeless

KEYS = {ORIGINAL: "original", UNIFORM: "50pct-uniform", FIXED: "50pct-fixed-sharing", OURS: "50pct-cafenet-e"}


def results_of(directory: Path) -> dict:
    return json.loads((directory / "results.json").read_text())


def loaded(directory: Path, method: str) -> torch.nn.Module:
    workload = Workload(load_recipe(str(directory / "recipe.yaml")))
    return cafenet.load(directory / "models" / KEYS[method] / "seed-0" / "slim.pt", workload.model)


def test_everything_is_written(finished):
    supernet = {"supernet.pt", "supernet.previous.pt", "log.jsonl", "trials.journal", "result-evolution-50pct.json"}
    model = {"model.pt", "model.previous.pt", "log.jsonl", "slim.pt", "start.json", "evaluation.json"}
    wanted = {f"{place}/{name}" for place in ("supernet", "supernet-fixed") for name in supernet}
    wanted |= {f"models/{key}/seed-0/{name}" for key in KEYS.values() for name in model}
    wanted |= {"recipe.yaml", "manifest.json", "entries.json", "results.json"}
    wanted |= {"space.json", "report.html"}
    assert {str(path.relative_to(finished)) for path in finished.rglob("*") if path.is_file()} == wanted


def test_one_row_a_method(finished):
    results = results_of(finished)
    assert [each["method"] for each in results["rows"]] == [ORIGINAL, UNIFORM, FIXED, OURS]
    assert [each["budget"] for each in results["rows"]] == ["", "50%", "50%", "50%"]
    assert row(results, ORIGINAL, "")["flops"] == FULL_FLOPS
    for each in results["rows"][1:]:
        assert FULL_FLOPS / 5 < each["flops"] <= FULL_FLOPS / 2
    for each in results["rows"]:
        assert each["latency_ms"] > 0
        assert len(each["accuracies"]) == 1
        assert 0 <= each["accuracies"][0] <= each["top5"] <= 1
        assert each["per_attribute"] is None
    assert [each["search_score"] is None for each in results["rows"]] == [True, True, False, False]
    assert results["reference"] == []


@pytest.mark.parametrize("method", KEYS)
def test_costs_are_those_of_the_saved_model(finished, method):
    results, model = results_of(finished), loaded(finished, method)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model.eval()(torch.zeros(1, 1, 28, 28))
    (found,) = [each for each in results["rows"] if each["method"] == method]
    assert found["flops"] == counter.get_total_flops() // 2
    assert found["params"] == sum(parameter.numel() for parameter in model.parameters())
    assert found["widths"] == {"0": model[0].out_channels, "3": model[3].out_channels}


@pytest.mark.parametrize("method", KEYS)
def test_accuracy_is_the_saved_models_on_the_whole_test_set(finished, method):
    workload = Workload(load_recipe(str(finished / "recipe.yaml")))
    found = evaluate(loaded(finished, method), workload.loader(workload.test))
    assert found["num_examples"] == 2000
    kept = json.loads((finished / "models" / KEYS[method] / "seed-0" / "evaluation.json").read_text())
    assert {key: value for key, value in kept.items() if key not in ("identity", SEAL)} == found
    (shown,) = [each for each in results_of(finished)["rows"] if each["method"] == method]
    assert (shown["accuracies"], shown["top5"]) == ([found["accuracy"]], found["top5"])


def test_validation_and_training_images_are_apart(recipe):
    workload = Workload(load_recipe(str(recipe)))
    images = {part: {image.numpy().tobytes() for image in getattr(workload, part).images} for part in ("train", "test")}
    validation = {image.numpy().tobytes() for image in workload.validation.images}
    assert validation.isdisjoint(images["train"])
    assert validation.isdisjoint(images["test"])
    assert validation | images["train"] == {image.numpy().tobytes() for image in workload.whole_train.images}


def test_the_same_seed_gives_the_same_table(finished, recipe, tmp_path, monkeypatch):
    """From Python this time. Supernets see the training part, final models all training images, none the test set."""
    sizes, plain, job = [], finals.train_model, Workload.job

    def noted(model, example, data, *arguments, **options):
        sizes.append(len(data.dataset))
        return plain(model, example, data, *arguments, **options)

    def noted_job(self, *arguments, **options):
        found = job(self, *arguments, **options)
        sizes.append((len(found.train_data.dataset), len(found.val_data.dataset)))
        return found

    monkeypatch.setattr(finals, "train_model", noted)
    monkeypatch.setattr(Workload, "job", noted_job)
    rows = run_recipe(load_recipe(str(recipe)), tmp_path / "run", quiet=True, command=["my", "script"])
    expected = timeless(results_of(finished))
    assert timeless(results_of(tmp_path / "run")) == expected
    assert [list(each.accuracies) for each in rows] == [each["accuracies"] for each in expected["rows"]]
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["command"] == ["my", "script"]
    assert set(sizes) == {(130, 20), 150}  # of 15 images of each of 10 classes, 2 are held out
    assert sizes.count(150) == 4


def test_other_seeds_give_another_table(finished, recipe, tmp_path):
    other = run(recipe, tmp_path / "run", "--seed=1", "--finetune.seeds=[7]")
    assert [each["accuracies"] for each in other["rows"]] != [
        each["accuracies"] for each in results_of(finished)["rows"]
    ]


def test_a_second_start_does_nothing_again(finished, tmp_path, monkeypatch):
    directory = Path(shutil.copytree(finished, tmp_path / "run"))
    patterns = ("*.pt", "*.journal", "evaluation.json", "result-*.json")
    before, first = contents(directory, *patterns), timeless(results_of(directory))
    assert len(before) == 24

    def never(*arguments, **options):
        raise AssertionError("this was done before")

    monkeypatch.setattr(trainer.Trainer, "_train_step", never)
    monkeypatch.setattr(Scorer, "score", never)
    monkeypatch.setattr(finals, "evaluate", never)
    assert timeless(run(finished.parent / "tiny.yaml", directory)) == first
    assert contents(directory, *patterns) == before
    assert num_steps(directory / "supernet") == num_steps(directory / "models" / "original" / "seed-0") == 4


def test_a_changed_recipe_says_what_differs(finished, tmp_path, capsys):
    directory = Path(shutil.copytree(finished, tmp_path / "run"))
    before = contents(directory, "*")
    flags = ["--train.epochs=2", "--budget=40%", "--finetune.seeds=[1, 2]"]
    line = refused(capsys, "run", finished.parent / "tiny.yaml", "--output", directory, *flags)
    assert f"{directory} holds a run of another recipe" in line
    assert "train.epochs was 1.0, is 2.0" in line
    assert "budget was '50%', is '40%'" in line
    assert "finetune.seeds was [0], is [1, 2]" in line
    assert "--output" in line
    assert contents(directory, "*") == before


def test_many_changes_are_counted(finished, capsys):
    flags = [f"--evolution.{name}=9" for name in ("population", "iterations", "num_parents", "screened")]
    flags += ["--seed=3", "--train.epochs=9", "--supernet.beta=0.5"]
    line = refused(capsys, "run", finished.parent / "tiny.yaml", "--output", finished, *flags)
    assert line.count(" was ") == 5
    assert "; and 2 more" in line


def test_a_description_or_a_published_row_is_no_change(finished, tmp_path):
    directory = Path(shutil.copytree(finished, tmp_path / "run"))
    content = yaml.safe_load((finished.parent / "tiny.yaml").read_text())
    content |= {"description": "other words", "reference": [{"method": "TAS", "accuracy": "93.2"}]}
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(content))
    results = run(tmp_path / "again.yaml", directory)
    assert results["reference"][0]["method"] == "TAS"
    assert yaml.safe_load((directory / "recipe.yaml").read_text())["description"] == "other words"


def test_the_kept_recipe_continues_the_run(finished, tmp_path, monkeypatch):
    """recipe.yaml of the directory is a recipe of its own, defaults and all."""
    directory = Path(shutil.copytree(finished, tmp_path / "run"))
    assert load_recipe(str(directory / "recipe.yaml")) == load_recipe(str(finished.parent / "tiny.yaml"))
    monkeypatch.setattr(trainer.Trainer, "_train_step", None)
    run(directory / "recipe.yaml", directory)


def test_the_manifest_tells_how_it_came_about(finished):
    manifest = json.loads((finished / "manifest.json").read_text())
    assert (manifest["format"], manifest["format_version"], manifest["seed"]) == ("cafenet-run", 3, 0)
    assert manifest["started"] <= manifest["finished"]
    assert manifest["versions"]["cafenet"] == cafenet.__version__
    assert manifest["versions"]["torch"] == torch.__version__
    assert {"python", "numpy", "optuna"} <= set(manifest["versions"])
    assert set(manifest["seconds"]) == {"train", "search", "finetune", "evaluate"}
    assert all(seconds > 0 for seconds in manifest["seconds"].values())
    assert manifest["hardware"]["cpu_cores"] >= 1
    assert manifest["hardware"]["threads"] == 1
    assert isinstance(manifest["command"], list)
    assert "git_revision" in manifest


def test_results_are_plain_json(finished):
    """No NaN and no Infinity, which other readers refuse."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    for path in finished.rglob("*.json"):
        json.loads(path.read_text(), parse_constant=refuse)
    (comparison, *_) = [each for each in results_of(finished)["comparisons"] if each["second"] == UNIFORM]
    assert (comparison["first"], comparison["budget"]) == (OURS, "50%")
    assert (comparison["num_pairs"], comparison["low"], comparison["high"]) == (1, None, None)


def test_the_table_is_printed_with_what_may_be_claimed(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    directory = shutil.copytree(finished, tmp_path / "run")
    assert main(["run", str(finished.parent / "tiny.yaml"), "--output", str(directory), "--quiet"]) == 0
    output = capsys.readouterr().out
    assert "a tiny run" in output
    for method in KEYS:
        assert method in output
    assert "CafeNet-E at 50%: " in output
    assert "Uniform" in output
    assert "(1 seed)" in output
    assert str(directory) in output


def test_the_run_directory_is_named_after_the_recipe(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "tiny.yaml", "--quiet", "--baselines.fixed=false"]) == 0
    assert (tmp_path / "runs" / "tiny" / "supernet" / "supernet.pt").exists()


def test_a_model_of_the_working_directory(recipe, tmp_path, monkeypatch):
    (tmp_path / "net.py").rename(tmp_path / "net_of_a_run.py")
    monkeypatch.chdir(tmp_path)
    flags = ["--model.name=net_of_a_run:build", "--baselines.fixed=false"]
    assert main(["train", str(recipe), "--output", str(tmp_path / "run"), "--quiet", *flags]) == 0
    assert num_steps(tmp_path / "run" / "supernet") == 4
