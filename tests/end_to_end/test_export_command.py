"""`cafenet export`: a final model of a run as a file, by method, budget and seed."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import cafenet
from cafenet.cli.main import main
from cafenet.runs.recipe_files import load_recipe
from cafenet.runs.workload import Workload
from tests.helpers.small_training import assert_same_state
from tests.helpers.tiny_run import OURS, UNIFORM, refused, row, run


def loaded(path: Path, directory: Path) -> torch.nn.Module:
    return cafenet.load(path, Workload(load_recipe(str(directory / "recipe.yaml"))).model)


def test_our_model_is_the_default(finished, tmp_path, capsys):
    assert main(["export", str(finished), str(tmp_path / "model.pt")]) == 0
    assert f"{tmp_path}/model.pt: CafeNet-E 50%, largest difference of outputs 0" in capsys.readouterr().out
    kept = loaded(finished / "models" / "50pct-cafenet-e" / "seed-0" / "slim.pt", finished)
    assert_same_state(loaded(tmp_path / "model.pt", finished), kept)
    results = json.loads((finished / "results.json").read_text())
    assert row(results, OURS)["widths"]["3"] == kept[3].out_channels


def test_by_method_and_format(finished, tmp_path):
    arguments = ["export", str(finished), str(tmp_path / "model.bin"), "--method", UNIFORM, "--format", "pt2"]
    assert main(arguments) == 0
    kept = loaded(finished / "models" / "50pct-uniform" / "seed-0" / "slim.pt", finished).eval()
    shutil.copy(tmp_path / "model.bin", tmp_path / "model.pt2")
    inputs = torch.randn(1, 1, 28, 28)
    torch.testing.assert_close(torch.export.load(tmp_path / "model.pt2").module()(inputs), kept(inputs))


def test_by_budget_and_seed(recipe, tmp_path):
    flags = ["--budget=60%,30%", "--finetune.seeds=[2,5]", "--baselines.fixed=false"]
    run(recipe, tmp_path / "run", *flags, "--baselines.original=false", "--baselines.uniform=false", step="retrain")
    for budget, seed, place in (("30%", "5", "30pct-cafenet-e/seed-5"), (None, None, "60pct-cafenet-e/seed-2")):
        chosen = [] if budget is None else ["--budget", budget, "--seed", seed]
        assert main(["export", str(tmp_path / "run"), str(tmp_path / "model.pt"), *chosen]) == 0
        kept = loaded(tmp_path / "run" / "models" / place / "slim.pt", tmp_path / "run")
        assert_same_state(loaded(tmp_path / "model.pt", tmp_path / "run"), kept)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "CafeNet-X"], "the run has no CafeNet-X; it has CafeNet-E 50%, Fixed sharing 50%, Original"),
        (["--budget", "25%"], "the run has no CafeNet-E 25%; it has CafeNet-E 50%"),
        (["--seed", "9"], "the run has no trained CafeNet-E 50% of seed 9"),
    ],
)
def test_what_the_run_does_not_have(arguments, message, finished, tmp_path, capsys):
    assert message in refused(capsys, "export", finished, tmp_path / "model.pt", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_several_formats_and_int8(finished, tmp_path, capsys):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    assert main(["export", str(finished), str(tmp_path / "model"), "--format", "pt2,onnx"]) == 0
    assert {each.name for each in tmp_path.iterdir()} == {"model.pt2", "model.onnx"}
    assert main(["export", str(finished), str(tmp_path / "int8.onnx"), "--quantize", "int8"]) == 0
    assert "int8.onnx: CafeNet-E 50%, largest difference of outputs " in (said := capsys.readouterr().out)
    assert ", accuracy on validation data " in said.splitlines()[-1]
    with pytest.raises(SystemExit):
        main(["export", str(finished), str(tmp_path / "model"), "--format", "onnx,tflite"])
    assert "must be of pt, pt2, onnx, openvino, executorch, but got tflite" in capsys.readouterr().err


def test_an_unknown_ending(finished, tmp_path, capsys):
    assert "must be one of pt, pt2, onnx, openvino, executorch, but got 'h5'" in refused(
        capsys, "export", finished, tmp_path / "model.h5"
    )


def test_no_run_directory(tmp_path, capsys):
    line = refused(capsys, "export", tmp_path, tmp_path / "model.pt")
    assert f"{tmp_path} must be a run directory, but has no recipe.yaml; see `cafenet run`" in line


def test_a_run_that_has_not_come_so_far(recipe, tmp_path, capsys):
    run(recipe, tmp_path / "run", "--baselines.fixed=false", step="train")
    assert "must hold a finished search" in refused(capsys, "export", tmp_path / "run", tmp_path / "model.pt")
    run(recipe, tmp_path / "run", "--baselines.fixed=false", step="search")
    line = refused(capsys, "export", tmp_path / "run", tmp_path / "model.pt")
    assert "the run has no trained CafeNet-E 50% of seed 0; it may lack `cafenet finetune`" in line


def test_the_directory_of_a_search_is_named_with_what_exports_it(tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text("call: cafenet.search\n")
    assert main(["export", str(tmp_path), str(tmp_path / "model.pt")]) == 2
    assert "holds a search; call result.export(FILE)" in capsys.readouterr().err
