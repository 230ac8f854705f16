"""A slim model, and Uniform beside it, that learn the outputs of the given model, too."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import TrainingError
from cafenet.pipeline import one_stage
from cafenet.supernet.train import train_supernet
from cafenet.training.distillation import DistillConfig
from tests.helpers.small_training import assert_same_state, built, config, data
from tests.pipeline.test_gain import EXAMPLE, OPTIONS, TRAIN, searched

SOFT = DistillConfig(weight=0.9, temperature=2.0)


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    return cafenet.train_model(built(), EXAMPLE, data(128, 1), config(epochs=2), quiet=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("distill")


@pytest.fixture(scope="module")
def taught(trained, place):
    return searched(trained, directory=place, distill=SOFT)


def is_same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_the_slim_model_is_the_one_that_train_model_teaches(trained, taught):
    begun = searched(trained, finetune=False).model
    by_hand = cafenet.train_model(begun, EXAMPLE, TRAIN, config(), teacher=trained, distill=SOFT, quiet=True)
    assert_same_state(taught.searched, by_hand)


def test_uniform_learns_from_the_same_teacher(trained, taught):
    alone = searched(trained)
    assert alone.widths == taught.widths
    assert not is_same(taught.uniform, alone.uniform)
    assert not is_same(taught.searched, alone.searched)


def test_a_search_without_a_teacher_is_not_taken_for_one_with(trained, taught, place):
    assert_same_state(searched(trained, directory=place, distill=SOFT).searched, taught.searched)
    alone = searched(trained, directory=place)
    assert not is_same(alone.searched, taught.searched)
    assert_same_state(alone.searched, searched(trained).searched)


@pytest.mark.parametrize("is_trained", [True, False])
def test_supernets_of_all_stages_learn_from_a_trained_original(is_trained, trained, monkeypatch):
    teachers = []

    def noted(*args, teacher, **given):
        teachers.append(teacher)
        return train_supernet(*args, teacher=teacher, **given)

    monkeypatch.setattr(one_stage, "train_supernet", noted)
    sampling = cafenet.SamplingConfig(full_share=0.0, distill=SOFT)
    options = replace(OPTIONS, sampling=sampling, stages=cafenet.StagesConfig(2))
    searched(trained, options=options, finetune=False, trained=is_trained)
    assert teachers == [trained if is_trained else None] * 2


def test_the_plan_names_the_teacher(trained, capsys):
    searched(trained, distill=True, quiet=False)
    lines = [line for line in capsys.readouterr().err.splitlines() if "with the given model as the teacher" in line]
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"trained": False}, "distill needs a model that comes trained, but this one does not; leave distill out"),
        ({"finetune": False}, "distill teaches the slim model during its own training, but it has none"),
        ({"distill": 0.5}, r"distill must be .*, but is 0\.5"),
    ],
    ids=["fresh", "no training", "a number"],
)
def test_what_cannot_be_taught(trained, given, line):
    with pytest.raises(TrainingError, match=line):
        searched(trained, **{"distill": True, **given})
