"""What `cafenet.search` refuses before any training, where the mistake would show only at the end of the work."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import cafenet
from cafenet.errors import ScoringError, TrainingError
from tests.helpers.small_training import built, config, data


@pytest.fixture(autouse=True)
def nothing_is_trained(monkeypatch):
    monkeypatch.setattr("cafenet.pipeline.one_stage.train_supernet", None)


def search(model: nn.Module, **given: Any) -> Any:
    return cafenet.search(model, data(64, 1), data(32, 2), train=config(), quiet=True, **given)


@pytest.mark.parametrize(
    ("test_data", "words"),
    [
        (TensorDataset(torch.zeros(8, 5, 4, 4), torch.zeros(8).long()), "must take the inputs of the test data"),
        (TensorDataset(torch.zeros(8, 3, 4, 4), torch.full((8,), 7)), "labels of the test data must lie in 0 to 3"),
        ([], "test data must hold at least one example"),
    ],
)
def test_test_data_that_do_not_fit(test_data, words):
    with pytest.raises(ScoringError, match=words):
        search(built(), test_data=test_data)


def test_a_model_without_parameters():
    with pytest.raises(TrainingError, match="must have parameters, but this Sequential has none"):
        search(nn.Sequential(nn.Flatten(), nn.Softmax(1)))


@pytest.mark.parametrize("trained", [None, True])
def test_a_model_whose_answers_are_no_numbers(trained):
    model = built()
    model.norm_one.running_var.fill_(-1)
    with pytest.raises(ScoringError, match=r"outputs of the model must be numbers.*trained=False"):
        search(model, trained=trained)
