"""The weights that a recipe names are those that its supernets start from; final models are fresh unless it says so."""

from dataclasses import replace

import pytest
import torch

from cafenet.errors import RecipeError
from cafenet.models import load_model
from cafenet.runs.recipe import ModelConfig, Recipe
from cafenet.runs.workload import Workload
from tests.helpers.small_training import assert_same_state

PLAIN = ModelConfig(name="cafenet:plain_cnn")


def workload_of(weights: object) -> Workload:
    return Workload(Recipe(model=replace(PLAIN, weights=str(weights))))


def test_supernets_start_from_the_file_and_final_models_do_not(tmp_path):
    trained = load_model("cafenet:plain_cnn")
    for parameter in trained.parameters():
        parameter.data.fill_(0.25)
    torch.save({"model": trained.state_dict(), "epoch": 3}, tmp_path / "checkpoint.pth")
    work = workload_of(tmp_path / "checkpoint.pth")
    assert_same_state(work.model, trained)
    assert_same_state(work.build(0), Workload(Recipe(model=PLAIN)).model)


def test_files_that_do_not_fit_are_refused_with_the_recipes_key(tmp_path):
    torch.save(load_model("cafenet:plain_cnn", channels=(4, 4, 4, 4, 4)).state_dict(), tmp_path / "narrow.pt")
    (tmp_path / "text.pt").write_text("weights")
    for name, line in (
        ("narrow.pt", "model.weights must fit the model, but .*narrow.pt has "),
        ("text.pt", "model.weights must be a state dict, but .*text.pt"),
        ("absent.pt", "model.weights must be a state dict, but .*absent.pt"),
    ):
        with pytest.raises(RecipeError, match=line):
            _ = workload_of(tmp_path / name).model
