"""A trained model as the start of a search: found out by its score against chance, with defaults of its own."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import cafenet
from cafenet import SamplingConfig, SupernetConfig
from cafenet.common.read_files import read_file
from cafenet.common.run_files import RECIPE
from cafenet.pipeline.job import Job
from cafenet.pipeline.lengths import Given
from cafenet.pipeline.trained_model import judge
from cafenet.training.optimizers import OptimizerConfig
from tests.helpers.small_training import assert_same_state, built, config, data

EXAMPLE = torch.zeros(1, 3, 4, 4)
TRAIN, VAL = data(64, 1), data(64, 2)
FEW = cafenet.SearchOptions(
    algorithm=cafenet.RandomSearch(samples=4), scoring=cafenet.ScoringConfig(calibration_size=32)
)


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    return cafenet.train_model(built(), EXAMPLE, data(256, 1), config(epochs=6), quiet=True)


def settings_of(directory) -> dict:
    return read_file(RECIPE, directory)


def searched(model: nn.Module, directory, **given):
    given = {"train": config(), "options": FEW, "baseline": False, "quiet": True, **given}
    return cafenet.search(model, TRAIN, VAL, "50%", directory=directory, **given)


def test_a_trained_model_and_a_fresh_one_are_told_apart(trained, tmp_path):
    job = Job(train_data=TRAIN, val_data=VAL)
    accuracy = cafenet.evaluate(trained, VAL)["accuracy"]
    verdict = judge(trained, job, tmp_path / "one", None)
    most_frequent = int(torch.bincount(VAL.tensors[1]).max()) / 64
    assert verdict.is_trained
    assert f"accuracy {accuracy:.1%} on 64 validation examples, chance is {most_frequent:.1%}" in verdict.sentence
    fresh = judge(built(), job, tmp_path / "two", None)
    assert not fresh.is_trained
    assert "trained=True overrides" in fresh.sentence


@pytest.mark.parametrize(("seed", "classes"), [(seed, classes) for seed in range(4) for classes in (2, 10)])
def test_fresh_networks_do_not_look_trained(seed, classes, tmp_path):
    """On images whose classes differ clearly, where random features alone say something."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.randint(classes, (1000,), generator=generator)
    images = torch.randn(classes, 3, 4, 4, generator=generator)[labels] + torch.randn(
        1000, 3, 4, 4, generator=generator
    )
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, classes))
    assert not judge(model, Job(train_data=TRAIN, val_data=TensorDataset(images, labels)), tmp_path, None).is_trained


@pytest.mark.parametrize("loss", ["bce", "cross_entropy"])
def test_targets_of_two_dimensions(loss, trained, tmp_path):
    job = Job(train_data=TRAIN, val_data=TensorDataset(VAL.tensors[0], torch.eye(4)[VAL.tensors[1]]), loss=loss)
    assert judge(trained, job, tmp_path / "one", None).is_trained
    assert not judge(built(), job, tmp_path / "two", None).is_trained


def negative_distance(output: Tensor, target: Tensor) -> Tensor:
    return -(output.softmax(1) - torch.eye(4)[target]).square().sum(1)


def test_a_metric_of_the_users_own_is_compared_with_other_examples_targets(trained, tmp_path):
    job = Job(train_data=TRAIN, val_data=VAL, metric=negative_distance)
    assert judge(trained, job, tmp_path / "one", None).is_trained
    assert not judge(built(), job, tmp_path / "two", None).is_trained


def test_the_verdict_is_kept_for_the_same_model_data_and_metric_alone(trained, tmp_path, monkeypatch):
    job = Job(train_data=TRAIN, val_data=VAL)
    first = judge(trained, job, tmp_path, None)
    images, labels = VAL.tensors
    assert not judge(built(), job, tmp_path, None).is_trained
    other = Job(train_data=TRAIN, val_data=TensorDataset(images, (labels + 1) % 4))
    assert not judge(trained, other, tmp_path, None).is_trained
    assert judge(trained, Job(TRAIN, VAL, metric=lambda output, target: -output[:, 0]), tmp_path, None) != first
    judge(trained, job, tmp_path, None)
    monkeypatch.setattr("cafenet.pipeline.trained_model.against_chance", None)  # nobody looks a second time
    assert judge(trained, job, tmp_path, None) == first


def test_a_trained_model_gets_its_defaults_and_stays_as_it_is(trained, tmp_path):
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    answer = searched(trained, tmp_path / "it")
    found = settings_of(tmp_path / "it")
    assert found["supernet"]["sort_by_importance"] is True
    assert found["sampling"]["full_share"] == 0.0
    assert not (tmp_path / "it" / "supernet" / "50pct" / "stage-1" / "full").exists()
    assert answer.gain.is_trained
    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())


def test_a_fresh_model_keeps_the_defaults_of_before(tmp_path):
    searched(built(), tmp_path)
    found = settings_of(tmp_path)
    assert (found["supernet"]["sort_by_importance"], found["sampling"]["full_share"]) == (False, 0.3)


def test_the_user_overrides(trained, tmp_path):
    searched(trained, tmp_path / "said", trained=False)
    assert settings_of(tmp_path / "said")["sampling"]["full_share"] == 0.3
    options = cafenet.SearchOptions(
        supernet=SupernetConfig(r=1), sampling=SamplingConfig(full_share=0.3), algorithm=FEW.algorithm
    )
    searched(trained, tmp_path / "given", options=options)
    found = settings_of(tmp_path / "given")
    assert (found["supernet"]["sort_by_importance"], found["sampling"]["full_share"]) == (False, 0.3)
    assert found["train"]["optimizer"]["lr"] == config().optimizer.lr


def given(**options) -> Given:
    names = ("epochs", "finetune_epochs", "train", "finetune")
    values = {**dict.fromkeys(names), "effort": "normal", "start": "supernet", "seed": 3, **options}
    return Given(**values)


@pytest.mark.parametrize(
    ("options", "is_trained", "expected"),
    [
        ({}, True, (5, 0.05, 15, 0.05)),
        ({}, False, (10, 0.1, 10, 0.1)),
        ({"effort": "quick"}, True, (1.5, 0.05, 4.5, 0.05)),
        ({"effort": "thorough"}, False, (40, 0.1, 40, 0.1)),
        ({"epochs": 20}, True, (20, 0.05, 60, 0.05)),
        ({"epochs": 20}, False, (20, 0.1, 20, 0.1)),
        ({"finetune_epochs": 4}, True, (5, 0.05, 4, 0.05)),
        ({"train": config(epochs=8, lr=0.3)}, True, (8, 0.3, 24, 0.3)),
        ({"train": config(epochs=8), "finetune": config(epochs=1, lr=0.7)}, True, (8, 0.05, 1, 0.7)),
        ({"start": "scratch"}, True, (10, 0.05, 10, 0.1)),
        ({"optimizer": OptimizerConfig("AdamW", lr=0.001)}, True, (5, 0.0005, 15, 0.0002)),
        ({"num_examples": 4000}, True, (5, 0.05, 15, 0.05)),
        ({"num_examples": 400}, False, (34, 0.1, 34, 0.1)),  # 12 steps of 32 an epoch, and 400 steps
        ({"num_examples": 400}, True, (17, 0.05, 51, 0.05)),
        ({"num_examples": 400, "effort": "quick"}, True, (4.5, 0.05, 13.5, 0.05)),
        ({"num_examples": 400, "batch_size": 100}, True, (50, 0.05, 150, 0.05)),
    ],
)
def test_lengths_and_rates(options, is_trained, expected):
    supernet, slim = given(**options).trainings(is_trained)
    found = (supernet.epochs, supernet.optimizer.lr, slim.epochs, slim.optimizer.lr)
    assert found == pytest.approx(expected)
    assert (supernet.seed, slim.seed) == (3, 3)


@pytest.mark.parametrize(("num_examples", "expected"), [(None, 256), (50_000, 256), (4_000, 64), (400, 32), (20, 20)])
def test_small_data_have_small_batches(num_examples, expected):
    assert given(num_examples=num_examples).trainings(is_trained=True)[0].batch_size == expected


@pytest.mark.parametrize("options", [{"finetune": False}, {"finetune_epochs": 0}])
def test_no_training_of_the_slim_model(options):
    supernet, slim = given(**options).trainings(True)
    assert (supernet.epochs, slim) == (5, None)


def test_the_line_is_printed_unless_quiet(trained, tmp_path, capsys):
    searched(trained, tmp_path / "loud", quiet=False)
    assert capsys.readouterr().err.startswith("The model is trained: accuracy ")
    searched(trained, tmp_path / "quiet")
    assert capsys.readouterr().err == ""


def test_a_look_changes_neither_the_result_nor_the_random_numbers(trained, tmp_path):
    """The plan times steps on copies; the search that follows is the same with and without it."""
    torch.manual_seed(5)
    loud = searched(trained, tmp_path / "loud", quiet=False)
    quiet = searched(trained, tmp_path / "quiet")
    assert_same_state(loud.model, quiet.model)
    assert loud.found == quiet.found
