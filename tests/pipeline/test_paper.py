"""`options="paper"`: the paper's algorithm by one word of `cafenet.search`."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import cafenet
from cafenet.errors import CafeNetError
from cafenet.pipeline.lengths import sampling_of, supernet_of
from cafenet.pipeline.paper import SHARING, paper_options, value_at
from cafenet.supernet.plain_training import initialised

METHOD = Path(__file__).resolve().parents[2] / "docs" / "method.md"


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2))


def test_options_are_those_of_the_paper():
    options = paper_options()
    assert {key: value_at(options, key) for key in SHARING} == SHARING
    assert (options.algorithm.population, options.algorithm.iterations, options.stages.num_stages) == (40, 50, 1)
    assert paper_options("random").algorithm.samples == 2000


def test_another_algorithm_is_refused():
    with pytest.raises(CafeNetError, match="must be one of evolution and random, but is 'trend'"):
        paper_options("trend")


def test_the_word_is_the_options_from_fresh_weights():
    """The same search written out: fresh weights, the options, a slim model from scratch."""
    data = TensorDataset(torch.randn(256, 1, 4, 4), torch.arange(256) % 2)
    model = network()
    nn.init.zeros_(model[4].weight)
    common = {"epochs": 1, "finetune_epochs": 1, "budget": "60%", "quiet": True, "seed": 3}
    in_a_word = cafenet.search(model, data, data, options="paper", **common)
    written = cafenet.search(initialised(model, 3), data, data, options=paper_options(), start="scratch", **common)
    assert in_a_word.widths == written.widths
    for one, other in zip(in_a_word.model.parameters(), written.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_another_word_is_refused():
    data = TensorDataset(torch.randn(8, 1, 4, 4), torch.arange(8) % 2)
    with pytest.raises(CafeNetError, match="options"):
        cafenet.search(network(), data, data, options="papr", epochs=1, quiet=True)


def test_the_table_of_the_docs_has_every_value_and_default():
    rows = dict(re.findall(r"^\| [^|]+ \| `([a-z_.]+)`: ([^|]+) \|", METHOD.read_text(encoding="utf-8"), re.MULTILINE))
    given = cafenet.SearchOptions()
    default = replace(
        given, supernet=supernet_of(given, is_trained=False), sampling=sampling_of(given, is_trained=False)
    )
    for key, value in SHARING.items():
        if value != value_at(default, key):
            assert rows[key] == str(value).lower().replace("none", "null"), key
