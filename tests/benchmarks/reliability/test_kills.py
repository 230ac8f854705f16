"""Jobs that are killed with -9 and started again end with what an uninterrupted one ends with."""

import random

import pytest
import torch

from benchmarks.reliability import kills
from benchmarks.reliability.jobs import JOBS, differing, results_of


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return tmp_path_factory.mktemp("kills")


@pytest.mark.parametrize(
    "name", ["search", pytest.param("run", marks=pytest.mark.slow), pytest.param("detect", marks=pytest.mark.slow)]
)
def test_killed_twice(name, shared, tmp_path):
    outcome = kills.killed_until_done(JOBS[name], 2, random.Random(name), tmp_path, shared)
    assert outcome.kind == kills.EQUAL, outcome.detail
    assert outcome.numbers["kills"] == 2


def test_one_bit_of_one_weight_is_noticed(shared):
    before, _ = kills.uninterrupted(JOBS["search"], shared)
    (path, *_) = sorted((shared / "search-whole").rglob("supernet.pt"))
    content = torch.load(path, weights_only=True)
    weight = content["model"]["0.weight"]
    weight.view(torch.int32)[0, 0, 0, 0] ^= 1
    torch.save(content, path)
    name = str(path.relative_to(shared / "search-whole"))
    assert differing(before, results_of(shared / "search-whole")) == [name]
