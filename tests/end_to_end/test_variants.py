"""What a recipe may ask for besides the plain run: budgets, stages, baselines, teachers, seeds, attributes, colours."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import cafenet
from cafenet.pipeline.entries import Entry, read_entries
from cafenet.runs import final_models as finals
from cafenet.runs.final_models import load_final, start_of
from cafenet.runs.recipe_files import load_recipe
from cafenet.runs.workload import Workload
from cafenet.scoring.evaluation import evaluate
from cafenet.supernet import trainer
from tests.helpers.small_training import assert_same_state
from tests.helpers.tiny_run import (
    FIXED,
    FULL_FLOPS,
    ORIGINAL,
    OURS,
    UNIFORM,
    faces_folder,
    num_steps,
    picture_folder,
    recipe_file,
    row,
    run,
)

ALONE = ("--baselines.original=false", "--baselines.uniform=false", "--baselines.fixed=false")
COLOUR = ("--model.input_size=[3,12,12]", "--model.options.in_channels=3", "--data.num_train=null")


def workload_of(directory: Path) -> Workload:
    return Workload(load_recipe(str(directory / "recipe.yaml")), quiet=True)


def test_several_budgets_of_one_supernet(recipe, tmp_path):
    results = run(recipe, tmp_path / "run", "--budget=60%,30%")
    assert [(each["method"], each["budget"]) for each in results["rows"]] == [
        (ORIGINAL, ""),
        *((method, budget) for method in (UNIFORM, FIXED, OURS) for budget in ("60%", "30%")),
    ]
    for each in results["rows"][1:]:
        assert each["flops"] <= {"60%": 0.6, "30%": 0.3}[each["budget"]] * FULL_FLOPS
    assert num_steps(tmp_path / "run" / "supernet") == 4
    assert {path.name for path in (tmp_path / "run" / "models").iterdir()} == {
        "original",
        *(f"{budget}pct-{method}" for budget in (60, 30) for method in ("uniform", "fixed-sharing", "cafenet-e")),
    }
    pairs = {(each["budget"], each["second"]) for each in results["comparisons"]}
    assert pairs == {(budget, method) for budget in ("60%", "30%") for method in (ORIGINAL, UNIFORM, FIXED)}
    assert len(results["comparisons"]) == 6


def test_uniform_is_one_factor_for_all_groups(recipe, tmp_path):
    results = run(recipe, tmp_path / "run", "--baselines.fixed=false", "--baselines.original=false")
    widths = row(results, UNIFORM)["widths"]
    assert abs(widths["0"] / 8 - widths["3"] / 12) < 1 / 8
    entry = next(entry for entry in read_entries(tmp_path / "run") if entry.method == UNIFORM)
    assert entry.channels == {name: list(range(width)) for name, width in widths.items()}


def test_the_fixed_sharing_keeps_leading_channels(finished):
    entries = {entry.method: entry for entry in read_entries(finished)}
    assert all(kept == list(range(len(kept))) for kept in entries[FIXED].channels.values())
    assert entries[FIXED].supernet == finished / "supernet-fixed"
    assert entries[OURS].supernet == finished / "supernet"
    saved = torch.load(finished / "supernet-fixed" / "supernet.pt", weights_only=True)["identity"]["sharing"]
    assert "r=0" in saved


def test_algorithms_share_a_supernet(recipe, tmp_path):
    samples = ["--random.samples=4", "--trend.samples=4"]
    algorithms = ["--algorithms=[evolution,random,trend]", *samples]
    results = run(recipe, tmp_path / "run", *ALONE, *algorithms)
    assert [each["method"] for each in results["rows"]] == ["CafeNet-E", "CafeNet-R", "CafeNet-T"]
    assert num_steps(tmp_path / "run" / "supernet") == 4
    names = {path.name for path in (tmp_path / "run" / "supernet").glob("result-*")}
    assert names == {"result-evolution-50pct.json", "result-random-50pct.json", "result-trend-50pct.json"}
    assert results["comparisons"] == []  # nothing to be compared with


def test_several_stages(recipe, tmp_path):
    directory = tmp_path / "run"
    run(recipe, directory, "--stages.num_stages=2", step="train")
    assert list(directory.rglob("*.pt")) == []  # each stage is trained when its search needs it
    results = run(recipe, directory, "--stages.num_stages=2")
    for place in ("supernet", "supernet-fixed"):
        stages = directory / place / "50pct"
        assert sorted(path.name for path in stages.iterdir()) == ["stage-1", "stage-2", "stages.json"]
        assert all((stages / name / "supernet.pt").exists() for name in ("stage-1", "stage-2"))
    (own,) = [entry for entry in read_entries(directory) if entry.method == OURS]
    assert own.supernet == directory / "supernet" / "50pct" / "stage-2"
    for method in (OURS, FIXED):
        assert row(results, method)["flops"] <= FULL_FLOPS / 2
    model = cafenet.load(directory / "models" / "50pct-cafenet-e" / "seed-0" / "slim.pt", workload_of(directory).model)
    assert row(results, OURS)["widths"] == {"0": model[0].out_channels, "3": model[3].out_channels}


def test_the_random_baseline_is_the_best_on_the_validation_set(recipe, tmp_path):
    flags = ["--baselines.random_widths=3", "--baselines.random_epochs=2", "--baselines.fixed=false"]
    results = run(recipe, tmp_path / "run", *flags)
    directory, workload = tmp_path / "run", workload_of(tmp_path / "run")
    places = sorted((directory / "random").glob("*/width-*"))
    assert [place.name for place in places] == ["width-0", "width-1", "width-2"]
    scores, widths = [], []
    for place in places:
        assert num_steps(place) == 8
        state = torch.load(place / "model.pt", weights_only=True)["model"]
        widths.append({"0": len(state["0.weight"]), "3": len(state["3.weight"])})
        slim = workload.space.extract(widths[-1])
        slim.load_state_dict(state)
        scores.append(evaluate(slim, workload.loader(workload.validation))["accuracy"])
    found = row(results, "Random")
    assert found["widths"] == widths[int(np.argmax(scores))]
    assert found["search_score"] == max(scores)
    assert all(workload.space.flops(each) <= FULL_FLOPS / 2 for each in widths)
    assert len({tuple(each.values()) for each in widths}) == 3
    assert num_steps(directory / "models" / "50pct-random" / "seed-0") == 4  # trained in full, like every row


def test_final_models_start_from_fresh_weights_of_their_seed(finished):
    workload = workload_of(finished)
    for entry in read_entries(finished):
        expected = workload.space.extract(channels=entry.channels or {}, model=workload.build(5))
        assert_same_state(start_of(workload, entry, 5), expected)
    assert not torch.equal(workload.build(5)[0].weight, workload.build(6)[0].weight)


def test_final_models_may_start_from_their_supernet(recipe, tmp_path, finished):
    results = run(recipe, tmp_path / "run", "--finetune.start=supernet")
    workload = workload_of(tmp_path / "run")
    for entry in read_entries(tmp_path / "run"):
        weights = workload.build(0)
        if entry.supernet is not None:
            assert entry.supernet.name == {OURS: "supernet", FIXED: "supernet-fixed"}[entry.method]
            weights.load_state_dict(torch.load(entry.supernet / "supernet.pt", weights_only=True)["model"])
        expected = workload.space.extract(channels=entry.channels or {}, model=weights)
        assert_same_state(start_of(workload, entry, 0), expected)
    ours = next(entry for entry in read_entries(finished) if entry.method == OURS)
    ends = [load_final(workload_of(path), ours, 0, path).state_dict() for path in (tmp_path / "run", finished)]
    assert not all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
    fresh = json.loads((finished / "results.json").read_text())
    assert row(results, OURS)["widths"] == row(fresh, OURS)["widths"]
    for method, budget in ((ORIGINAL, ""), (UNIFORM, "50%")):  # these have no supernet
        assert row(results, method, budget)["accuracies"] == row(fresh, method, budget)["accuracies"]


def test_the_original_as_a_teacher(recipe, tmp_path, monkeypatch):
    """Of the same seed, trained first and itself untaught."""
    taught, plain = {}, finals.train_model

    def noted(*arguments, teacher, distill, directory, **options):
        taught[directory.parent.name, directory.name] = teacher
        assert teacher is None or distill.weight == 0.9
        return plain(*arguments, teacher=teacher, distill=distill, directory=directory, **options)

    monkeypatch.setattr(finals, "train_model", noted)
    flags = ["--finetune.teacher=original", "--finetune.distill.weight=0.9", "--finetune.seeds=[0,1]"]
    run(recipe, tmp_path / "run", *flags, "--baselines.fixed=false")
    workload, models = workload_of(tmp_path / "run"), tmp_path / "run" / "models"
    for seed in ("seed-0", "seed-1"):
        assert taught["original", seed] is None
        original = cafenet.load(models / "original" / seed / "slim.pt", workload.model)
        for key in ("50pct-uniform", "50pct-cafenet-e"):
            assert_same_state(taught[key, seed], original)
    losses = [json.loads(line)["loss"] for line in (models / "50pct-uniform/seed-0/log.jsonl").read_text().splitlines()]
    assert losses[0] < 2  # the cross entropy of ten classes begins at 2.3, nine tenths of this loss at about 0


def test_a_teacher_by_name(recipe, tmp_path, monkeypatch):
    with (tmp_path / "net.py").open("a") as file:
        file.write("\n\ndef teacher():\n    model = build()\n    nn.init.zeros_(model[0].weight)\n    return model\n")
    teachers, plain = [], finals.train_model

    def noted(*arguments, teacher, **options):
        teachers.append(teacher)
        return plain(*arguments, teacher=teacher, **options)

    monkeypatch.setattr(finals, "train_model", noted)
    run(recipe, tmp_path / "run", *ALONE, f"--finetune.teacher={tmp_path}/net.py:teacher")
    (teacher,) = teachers
    assert not teacher[0].weight.any()


def test_a_fixed_sharing_is_not_its_own_baseline(recipe, tmp_path):
    results = run(recipe, tmp_path / "run", "--supernet.r=0")
    assert FIXED not in {each["method"] for each in results["rows"]}
    assert not (tmp_path / "run" / "supernet-fixed").exists()


def test_two_seeds(recipe, tmp_path):
    results = run(recipe, tmp_path / "run", "--finetune.seeds=[3,4]", "--baselines.fixed=false")
    for each in results["rows"]:
        assert len(each["accuracies"]) == 2
        key = Entry(each["method"], each["budget"], None).key
        found = [
            json.loads((tmp_path / "run" / "models" / key / f"seed-{seed}" / "evaluation.json").read_text())
            for seed in (3, 4)
        ]
        assert each["accuracies"] == [one["accuracy"] for one in found]
        assert each["top5"] == pytest.approx(np.mean([one["top5"] for one in found]))
    assert len({tuple(each["accuracies"]) for each in results["rows"]}) > 1
    for comparison in results["comparisons"]:
        assert comparison["num_pairs"] == 2
        assert comparison["low"] <= comparison["mean"] <= comparison["high"]
        ours, other = (
            row(results, comparison[name], "50%" if comparison[name] != ORIGINAL else "")["accuracies"]
            for name in ("first", "second")
        )
        assert comparison["mean"] == pytest.approx(np.mean(np.subtract(ours, other)))


def test_a_seed_more_trains_only_what_is_missing(recipe, tmp_path, monkeypatch):
    before = run(recipe, tmp_path / "run", "--baselines.fixed=false")["rows"]
    plain, trained = trainer.Trainer._train_step, set()

    def watched(self, batches):
        trained.add(self.directory.name)
        return plain(self, batches)

    monkeypatch.setattr(trainer.Trainer, "_train_step", watched)
    results = run(recipe, tmp_path / "run", "--baselines.fixed=false", "--finetune.seeds=[0,1]")
    assert trained == {"seed-1"}
    assert [each["accuracies"][:1] for each in results["rows"]] == [each["accuracies"] for each in before]
    assert all(len(each["accuracies"]) == 2 for each in results["rows"])


def test_attributes(tmp_path):
    faces = faces_folder(tmp_path / "faces")
    recipe = recipe_file(tmp_path, data={"source": f"celeba:{faces}", "options": {"size": [12, 12]}}, loss="bce")
    training = "{epochs: 6, batch_size: 10, log_every: 1, optimizer: {lr: 0.1}}"
    flags = [*COLOUR, "--model.options.num_classes=3", f"--train={training}", f"--finetune={training}"]
    results = run(recipe, tmp_path / "run", *flags)
    for each in results["rows"]:
        assert len(each["per_attribute"]) == 3
        assert each["accuracies"] == [pytest.approx(np.mean(each["per_attribute"]))]
        assert each["top5"] is None
    assert max(each["per_attribute"][0] for each in results["rows"]) > 0.9  # how bright an image is can be learned
    workload = workload_of(tmp_path / "run")
    model = cafenet.load(tmp_path / "run/models/50pct-cafenet-e/seed-0/slim.pt", workload.model)
    found = evaluate(model, workload.loader(workload.test))
    assert row(results, OURS)["per_attribute"] == found["per_attribute"]
    assert found["num_examples"] == 10


def test_attributes_are_averaged_over_seeds(tmp_path):
    faces = faces_folder(tmp_path / "faces")
    recipe = recipe_file(tmp_path, data={"source": f"celeba:{faces}", "options": {"size": [12, 12]}}, loss="bce")
    flags = [*COLOUR, "--model.options.num_classes=3", "--train.batch_size=10", "--finetune.batch_size=10"]
    results = run(recipe, tmp_path / "run", *flags, *ALONE, "--finetune.seeds=[0,1]")
    places = [tmp_path / "run/models/50pct-cafenet-e" / f"seed-{seed}/evaluation.json" for seed in (0, 1)]
    both = [json.loads(place.read_text())["per_attribute"] for place in places]
    assert row(results, OURS)["per_attribute"] == pytest.approx(np.mean(both, axis=0).tolist())


@pytest.mark.parametrize("limit", [2**30, 0], ids=["in memory", "in files"])
def test_colour_images_of_a_folder(limit, tmp_path):
    """Read once, or again and again by other processes: the same table."""
    pictures = picture_folder(tmp_path / "pictures")
    recipe = recipe_file(tmp_path, data={"source": f"folder:{pictures}", "options": {"cache_limit_bytes": limit}})
    flags = [*COLOUR, *ALONE, "--model.options.num_classes=2", "--data.num_workers=0"]
    flags += ["--train.batch_size=8", "--finetune.batch_size=8"]
    results = run(recipe, tmp_path / "run", *flags)
    assert row(results, OURS)["flops"] <= workload_of(tmp_path / "run").space.flops() / 2


def test_grey_images_for_a_network_of_colours(recipe, tmp_path):
    flags = ["--model.input_size=[3,28,28]", "--model.options.in_channels=3", *ALONE]
    run(recipe, tmp_path / "run", *flags, step="train")
    workload = workload_of(tmp_path / "run")
    images, _ = next(iter(workload.loader(workload.test)))
    assert images.shape[1:] == (3, 28, 28)
    assert torch.equal(images[:, 0], images[:, 2])


def test_images_are_brought_to_the_size_of_the_input(recipe, tmp_path):
    run(recipe, tmp_path / "run", "--model.input_size=[1,20,20]", *ALONE, step="train")
    workload = workload_of(tmp_path / "run")
    for loader in (workload.loader(workload.validation), workload.loader(workload.train, augmented_batch=8)):
        assert next(iter(loader))[0].shape[1:] == (1, 20, 20)


def test_a_sample_of_the_training_set_is_balanced(recipe):
    workload = Workload(load_recipe(str(recipe)))
    assert torch.bincount(workload.whole_train.targets).tolist() == [15] * 10
    assert torch.bincount(workload.validation.targets).tolist() == [2] * 10
    assert len(workload.test) == 2000


def test_frozen_layers_keep_their_width(recipe, tmp_path):
    results = run(recipe, tmp_path / "run", *ALONE, "--model.freeze=['3']")
    assert row(results, OURS)["widths"].keys() == {"0"}
    model = cafenet.load(tmp_path / "run/models/50pct-cafenet-e/seed-0/slim.pt", workload_of(tmp_path / "run").model)
    assert isinstance(model[3], nn.Conv2d)
    assert model[3].out_channels == 12


def test_an_own_model_gets_the_size_of_the_images(recipe, tmp_path):
    run(recipe, tmp_path / "run", "--model.input_size=null", *ALONE, step="train")
    assert json.loads((tmp_path / "run" / "space.json").read_text())["flops"] == FULL_FLOPS
