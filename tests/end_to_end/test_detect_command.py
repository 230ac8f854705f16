"""`cafenet detect` from a directory of `cafenet run` to the report, and the same in Python."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

import cafenet
from cafenet.cli.main import main
from cafenet.common.seals import sealed
from cafenet.detection import (
    BackbonesConfig,
    DetectionData,
    DetectionRecipe,
    DetectionTraining,
    detect,
    feature_pyramid,
    load_detector,
)
from cafenet.detection.backbone_sources import find_backbones
from cafenet.detection.errors import DetectionError
from cafenet.detection.recipe import BackboneFile, load_detection_recipe, shipped_detection_recipes
from cafenet.runs.recipe_files import as_document, to_yaml
from cafenet.training.checkpoint import load_checkpoint, write_checkpoint
from tests.helpers.cells import SMALL, document, finished_run, slim, tiny_net, write_cells


def recipe_file(place: Path, **sections) -> Path:
    """Two steps of training on nine pictures, three of which are held out."""
    run = finished_run(place)
    write_cells(place, document(9))
    content = {
        "description": "tiny <b>squares</b>",
        "seeds": [0, 1],
        "backbones": {"run": str(run)},
        "data": {"images": f"{place}/images", "train": f"{place}/cells.json", "test_share": 0.34},
        "detector": {**as_document(SMALL), "framework": "retinanet"},
        "train": {"epochs": 1, "batch_size": 3, "log_every": 1},
        "samples": 2,
        "reference": [{"backbone": "Published", "mAP": "34.9%"}],
        **sections,
    }
    path = place / "tiny.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole run of the command, beside its recipe; tests that change it take a copy."""
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("detect")
    assert main(["detect", str(recipe_file(place)), "--output", str(place / "out"), "--quiet"]) == 0
    return place / "out"


def refused(capsys, *arguments) -> str:
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line


def test_a_whole_run(finished):
    results = json.loads((finished / "results.json").read_text())
    assert [row["backbone"] for row in results["detectors"]] == ["Original", "Uniform 50%", "CafeNet-E 50%"]
    for row in results["detectors"]:
        assert (row["framework"], row["pretraining"], row["seeds"]) == ("retinanet", "two colours", [0, 1])
        assert set(row["scores"][0]) == {"mAP", "ap50", "ap75", "small", "medium", "large"}
    flops = [row["flops"] for row in results["detectors"]]
    assert flops[1] < flops[2] < flops[0]
    assert [(each["first"], each["second"]) for each in results["comparisons"]] == [
        ("CafeNet-E 50%", "Original"),
        ("CafeNet-E 50%", "Uniform 50%"),
    ]
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["finished"]
    assert load_detection_recipe(str(finished / "recipe.yaml")).backbones.run == str(finished.parent / "run")


def test_the_report_stands_alone(finished):
    page = (finished / "report.html").read_text()
    assert "tiny &lt;b&gt;squares" in page
    assert "<b>squares</b>" not in page
    for part in ("Precision against recall", "CafeNet-E 50%", "Published (published)", "two colours", "red", "blue"):
        assert part in page
    assert page.count("data:image/jpeg;base64,") == 2 * 4  # the true boxes and three detectors
    assert "http" not in page.replace("http://www.w3.org", "")
    assert len(page) < 300_000


def test_the_report_command_makes_the_detection_page_again(finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "copy")
    page = tmp_path / "copy" / "report.html"
    page.unlink()
    assert main(["report", str(tmp_path / "copy")]) == 0
    assert "Precision against recall" in page.read_text()
    assert "--figures is for runs of `cafenet run`" in refused(
        capsys, "report", tmp_path / "copy", "--figures", tmp_path / "figures"
    )
    assert "is one of `cafenet detect`" in refused(capsys, "compare", tmp_path / "copy", finished)


def test_a_second_start_changes_nothing_and_a_lost_evaluation_is_made_again(finished, tmp_path, capsys):
    place = tmp_path / "copy"
    shutil.copytree(finished, place)
    before = {path: path.read_bytes() for path in place.rglob("*.pt")}
    results = (place / "results.json").read_text()
    (place / "models" / "original" / "seed-0" / "evaluation.json").unlink()
    recipe = finished.parent / "tiny.yaml"
    assert main(["detect", str(recipe), "--output", str(place), "--quiet"]) == 0
    assert (place / "results.json").read_text() == results
    assert {path: path.read_bytes() for path in place.rglob("*.pt")} == before
    assert "holds a run of another recipe (seeds was [0, 1], is [0])" in refused(
        capsys, "detect", recipe, "--output", place, "--seeds", "[0]"
    )


def test_the_evaluation_of_the_same_weights_in_another_file_is_kept(finished, tmp_path, monkeypatch):
    """A training that was killed and went on ends with the same weights, but pickles them otherwise."""
    place = Path(shutil.copytree(finished, tmp_path / "copy"))
    path = place / "models" / "original" / "seed-0" / "detector.pt"
    before, evaluation = path.read_bytes(), path.with_name("evaluation.json").read_bytes()
    write_checkpoint(path, {**load_checkpoint(path), "further": 1})
    assert path.read_bytes() != before
    monkeypatch.setattr("cafenet.detection.run_recipe.predict", None)
    assert main(["detect", str(finished.parent / "tiny.yaml"), "--output", str(place), "--quiet"]) == 0
    assert path.with_name("evaluation.json").read_bytes() == evaluation


@pytest.mark.parametrize("change", ["other seed", "truncated", "data", "none"])
def test_an_evaluation_of_something_else_is_made_again(change, finished, tmp_path):
    place = Path(shutil.copytree(finished, tmp_path / "copy"))
    path = place / "models" / "original" / "seed-0" / "evaluation.json"
    before = path.read_text()
    content = {**json.loads(before), "mAP": 0.99}
    if change == "data":
        content["identity"]["test_data"] = "0"
    elif change == "none":
        del content["identity"]
    changed = json.dumps(sealed(content)) if change in ("data", "none") else before[: len(before) // 2]
    if change == "other seed":
        changed = path.parent.with_name("seed-1").joinpath("evaluation.json").read_text()
    path.write_text(changed)
    assert main(["detect", str(finished.parent / "tiny.yaml"), "--output", str(place), "--quiet"]) == 0
    assert path.read_text() == before
    assert (place / "results.json").read_text() == (finished / "results.json").read_text()


@pytest.mark.parametrize("content", [b"", b"{}", b"{", b"\x80\xff"])
def test_damaged_files_do_not_stop_the_run_or_its_report(content, finished, tmp_path, capsys):
    place = Path(shutil.copytree(finished, tmp_path / "copy"))
    model = place / "models" / "original" / "seed-0"
    damaged = [place / name for name in ("manifest.json", "samples.json", "results.json")]
    damaged += [model / name for name in ("evaluation.json", "detections.json", "log.jsonl")]
    for path in damaged:
        path.write_bytes(content)
    assert main(["report", str(place)]) == 0
    assert "manifest.json must hold when a run began" in capsys.readouterr().err
    (place / "results.json").write_bytes((finished / "results.json").read_bytes())
    assert main(["report", str(place)]) == 0
    page = (place / "report.html").read_text()
    assert page.count("Damaged: ") == 4  # manifest, samples, evaluation, log; detections are of no use without samples
    assert main(["detect", str(finished.parent / "tiny.yaml"), "--output", str(place), "--quiet"]) == 0
    for path in (place / "results.json", place / "samples.json", model / "evaluation.json"):
        assert path.read_text() == (finished / path.relative_to(place)).read_text()


def test_a_trained_detector_finds_again_what_it_found(finished):
    detector = load_detector(finished, "Uniform 50%", 1)
    weights = torch.load(finished / "models" / "uniform-50pct" / "seed-1" / "detector.pt", weights_only=True)["model"]
    assert all(torch.equal(tensor, weights[name]) for name, tensor in detector.state_dict().items())
    assert not detector.training
    with pytest.raises(DetectionError, match=r"must be one of Original, original, .* but got 'other'"):
        load_detector(finished, "other", 1)
    with pytest.raises(DetectionError, match=r"seed-5/detector\.pt must be a trained detector"):
        load_detector(finished, "original", 5)


def test_backbones_of_a_run_are_those_of_the_seed(finished):
    """The first layer's weights before training are the classification model's of the same seed."""
    found, _ = find_backbones(BackbonesConfig(run=str(finished.parent / "run"), entries=("original",)))
    weights = [found[0].build(seed).features[0][0].weight for seed in (0, 1, 2)]
    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])  # there is no seed 2, so the first one's


def test_other_strides_by_options(finished):
    config = BackbonesConfig(run=str(finished.parent / "run"), options={"first_stride": 4})
    found, _ = find_backbones(config)
    assert list(feature_pyramid(found[1].build(0), strides=(8, 16), channels=4).body) == ["stride8", "stride16"]


def test_in_python_with_modules_and_files(tmp_path):
    path = write_cells(tmp_path, document(6))
    cafenet.save(slim(tiny_net(), (32, 32)), tmp_path / "slim.pt")
    recipe = DetectionRecipe(
        backbones=BackbonesConfig(
            files=[BackboneFile("half", "tests.helpers.cells:tiny_net", weights=str(tmp_path / "slim.pt"))],
            pretraining="none",
        ),
        data=DetectionData(images=str(tmp_path / "images"), train=str(path), test_share=0.5),
        detector=SMALL,
        train=DetectionTraining(epochs=1, batch_size=3),
        samples=0,
    )
    (tmp_path / "mine.yaml").write_text(to_yaml(recipe))
    assert load_detection_recipe(str(tmp_path / "mine.yaml")) == recipe
    mine = tiny_net()
    before = {name: tensor.clone() for name, tensor in mine.state_dict().items()}
    rows = detect(recipe, tmp_path / "out", models={"mine": mine}, quiet=True)
    assert [(row.backbone, row.pretraining) for row in rows] == [("half", "none"), ("mine", "none")]
    assert rows[0].params < rows[1].params
    assert all(torch.equal(tensor, before[name]) for name, tensor in mine.state_dict().items())


def test_bad_recipes_end_before_training(tmp_path, capsys):
    recipe = recipe_file(tmp_path)
    out = tmp_path / "out"

    def message(*flags: str) -> str:
        return refused(capsys, "detect", recipe, "--output", out, "--quiet", *flags)

    assert "Original: the strides of a pyramid must be ones that the backbone has" in message(
        "--detector.strides", "[64]"
    )
    assert "backbones.entries must be among the models of" in message("--backbones.entries", "[50pct-other]")
    assert "must be a directory of `cafenet run`" in message("--backbones.run", str(tmp_path))
    assert "must fill one step of 1 x 100 examples, but has 6" in message("--train.batch_size", "100")
    assert "seeds must hold at least one" in message("--seeds", "[]")
    assert "must be a readable file" in message("--data.train", "none.json")
    assert "did you mean --train.epochs?" in message("--train.epoch", "1")
    assert not out.exists()
    (tmp_path / "run" / "models" / "50pct-uniform" / "seed-0" / "slim.pt").unlink()
    (tmp_path / "run" / "models" / "50pct-uniform" / "seed-1" / "slim.pt").unlink()
    assert "1 have no slim.pt (50pct-uniform); finish the run first" in message()
    write_cells(tmp_path, {**document(9), "categories": []})
    assert "has no categories" in message()


def test_backbones_must_be_there_named_apart_and_pretrained_alike(tmp_path):
    with pytest.raises(DetectionError, match="at least one backbone"):
        find_backbones(BackbonesConfig())
    with pytest.raises(DetectionError, match=r"backbones\.pretraining must say what all backbones learned"):
        find_backbones(BackbonesConfig(), {"a": tiny_net()})
    with pytest.raises(DetectionError, match="several are called a-b"):
        find_backbones(BackbonesConfig(pretraining="none"), {"A b": tiny_net(), "a-b": tiny_net()})


def test_a_network_without_stages_is_named(tmp_path):
    path = write_cells(tmp_path, document(6))
    recipe = DetectionRecipe(
        backbones=BackbonesConfig(pretraining="none"),
        data=DetectionData(images=str(tmp_path / "images"), train=str(path)),
        detector=SMALL,
        train=DetectionTraining(batch_size=2),
    )
    with pytest.raises(DetectionError, match="flat: a backbone must have stages"):
        detect(recipe, tmp_path / "out", models={"flat": torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3))})
    assert not (tmp_path / "out").exists()


def test_shipped_recipes(capsys):
    names = list(shipped_detection_recipes())
    assert sorted(names) == sorted(
        [f"coco-{net}-{kind}" for net in ("resnet50", "mobilenet-v2") for kind in ("faster-rcnn", "retinanet")]
        + ["bccd-faster-rcnn", "bccd-retinanet"]
    )
    for name in names:
        recipe = load_detection_recipe(name)
        assert recipe.detector.framework == name.split("-", 1)[1].removeprefix("resnet50-").removeprefix(
            "mobilenet-v2-"
        ).replace("-", "_")
        assert recipe.description
        if name.startswith("coco"):
            config = recipe.train
            assert (config.epochs, config.batch_size * config.accumulate, config.optimizer.lr) == (12, 256, 0.08)
            assert (config.schedule.milestones, config.schedule.gamma) == ((8, 11), 0.1)
            assert len(recipe.reference) == 3
    published = [each.mAP for each in load_detection_recipe("coco-mobilenet-v2-retinanet").reference]
    assert published == ["31.2%", "29.2%", "27.5%"]  # the paper's Experiments_COCO
    assert main(["detect", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)
    assert main(["detect", "bccd-retinanet", "--show"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["detector"]["framework"] == "retinanet"
    assert "see `cafenet detect --list`" in refused(capsys, "detect", "bccd")
    assert "give a recipe" in refused(capsys, "detect")


def test_dropped_boxes_are_counted_in_the_results(tmp_path):
    recipe = recipe_file(tmp_path, seeds=[0])
    content = document(9)
    for number in (0, 4):
        content["annotations"][number]["bbox"] = [60, 10, 16, 16]
    write_cells(tmp_path, content)
    flags = ["--data.bad_boxes", "drop", "--backbones.entries", "[original]", "--quiet"]
    assert main(["detect", str(recipe), "--output", str(tmp_path / "out"), *flags]) == 0
    counts = json.loads((tmp_path / "out" / "results.json").read_text())["dropped_boxes"]
    assert list(counts) == ["train", "test"]
    assert sum(counts.values()) == 2
    assert "left out: " in (tmp_path / "out" / "report.html").read_text()


def test_help_shows_every_key(capsys):
    assert main(["detect", "--help-recipe"]) == 0
    shown = capsys.readouterr().out
    for flag in ("--detector.fpn_channels", "--backbones.run", "--train.schedule.milestones", "--data.bad_boxes"):
        assert flag in shown
