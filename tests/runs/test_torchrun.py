"""`cafenet train` in two processes, and the rest of the run in one."""

from pathlib import Path

import pytest
import torch

from cafenet.runs.recipe_files import load_recipe
from cafenet.runs.run_recipe import run_recipe
from tests.helpers.tiny_run import recipe_file
from tests.helpers.torchrun import under_torchrun


@pytest.mark.slow
def test_two_processes_train_and_one_searches(tmp_path):
    train = {"epochs": 1, "batch_size": 16, "examples_per_step": 32, "optimizer": {"lr": 0.1}}
    file = recipe_file(tmp_path, train=train, algorithms=["random"], random={"samples": 4}, baselines={"fixed": False})
    under_torchrun(Path(__file__).with_name("train_in_two.py"), tmp_path, timeout=600)
    assert (tmp_path / "refused.txt").read_text().startswith("several processes can train the supernet of one stage")
    weights = torch.load(tmp_path / "run" / "supernet" / "supernet.pt", weights_only=True)
    run_recipe(load_recipe(str(file)), tmp_path / "run", until="search", quiet=True)
    kept = torch.load(tmp_path / "run" / "supernet" / "supernet.pt", weights_only=True)
    assert all(torch.equal(tensor, kept["model"][name]) for name, tensor in weights["model"].items())
    run_recipe(load_recipe(str(file)), tmp_path / "alone", until="train", quiet=True)
    alone = torch.load(tmp_path / "alone" / "supernet" / "supernet.pt", weights_only=True)
    assert alone["step"] == weights["step"]
    for name, tensor in alone["model"].items():
        if name.endswith("weight"):
            torch.testing.assert_close(weights["model"][name], tensor, rtol=1e-3, atol=1e-4, msg=name)
