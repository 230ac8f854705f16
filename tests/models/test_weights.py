"""Files of weights: what fits is loaded, anything else is refused in one line and leaves the model as it was."""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from cafenet.errors import ModelNameError
from cafenet.models import load_model, load_weights
from tests.helpers.small_training import assert_same_state, built

STATE = built(seed=1).state_dict()
FIRST = STATE["one.weight"]


@pytest.mark.parametrize(
    "content",
    [
        STATE,
        {"state_dict": STATE, "epoch": 3},
        {f"module.{name}": value for name, value in STATE.items()},
    ],
    ids=["state dict", "checkpoint", "DataParallel"],
)
def test_a_state_dict_is_loaded(content, tmp_path):
    torch.save(content, tmp_path / "net.pt")
    model = built(seed=2)
    load_weights(model, tmp_path / "net.pt")
    assert_same_state(model, built(seed=1))


@pytest.mark.parametrize("inside", ["state_dict", "model", "model_state_dict"])
def test_a_checkpoint_with_the_flags_of_its_training_is_loaded(inside):
    # as torchvision's reference scripts write it, with argparse's flags
    checkpoint = {inside: STATE, "optimizer": {"state": {}}, "epoch": 3, "args": argparse.Namespace(lr=0.1)}
    torch.save(checkpoint, "net.pth")
    model = built(seed=2)
    load_weights(model, "net.pth")
    assert_same_state(model, built(seed=1))


def test_files_from_before_batch_norm_counted_its_batches_are_loaded():
    torch.save({name: value for name, value in STATE.items() if "num_batches" not in name}, "net.pth")
    model = built(seed=2)
    load_weights(model, "net.pth")
    assert_same_state(model, built(seed=1))


def test_a_counter_that_is_missing_beside_others_is_a_fault():
    torch.save({name: value for name, value in STATE.items() if name != "norm_one.num_batches_tracked"}, "net.pth")
    with pytest.raises(ModelNameError, match=r"1 keys too few: norm_one\.num_batches_tracked"):
        load_weights(built(seed=2), "net.pth")


def test_a_file_of_safetensors_is_loaded_and_a_broken_one_refused(monkeypatch):
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file(STATE, "net.safetensors")
    model = built(seed=2)
    load_weights(model, "net.safetensors")
    assert_same_state(model, built(seed=1))
    Path("broken.safetensors").write_bytes(b"no header")
    with pytest.raises(ModelNameError, match=r"must be a state dict, but broken.safetensors cannot be read"):
        load_weights(model, "broken.safetensors")
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(ModelNameError, match="safetensors must be installed"):
        load_weights(model, "net.safetensors")


@pytest.mark.parametrize("name", ["torchvision:densenet121", "torchvision:resnet18", "timm:resnet10t"])
def test_published_files_of_torchvision_and_timm_are_loaded(name):
    """Random weights under the names of the files: no counters, and `norm.1` in DenseNets."""
    pytest.importorskip(name.partition(":")[0])
    source, model = load_model(name), load_model(name)
    published = {
        re.sub(r"(denselayer\d+\.(?:norm|conv))([12]\.)", r"\1.\2", key): value
        for key, value in source.state_dict().items()
        if "num_batches" not in key
    }
    torch.save(published, "published.pth")
    load_weights(model, "published.pth")
    assert_same_state(model, source)


def test_half_precision_is_loaded(tmp_path):
    torch.save({name: value.half() if value.is_floating_point() else value for name, value in STATE.items()}, "net.pt")
    model = built(seed=2)
    load_weights(model, "net.pt")
    assert torch.equal(model.state_dict()["one.weight"], FIRST.half().float())


@pytest.fixture(autouse=True)
def own_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (3, "1 keys that are no plain tensors: one.weight"),
        (None, "no plain tensors"),
        (FIRST.to("meta"), "no plain tensors"),
        (FIRST.to_sparse(), "no plain tensors"),
        (FIRST[:4], "1 keys of other sizes: one.weight"),
        (FIRST.long(), "of another kind of numbers: one.weight"),
        (FIRST.to(torch.complex64), "of another kind of numbers"),
        (FIRST * float("nan"), "values that are not finite: one.weight"),
        (FIRST / 0, "values that are not finite"),
    ],
)
def test_a_wrong_tensor_is_refused_and_the_model_is_unchanged(first: Any, words: str):
    torch.save({**STATE, "one.weight": first}, "net.pt")
    model = built(seed=2)
    with pytest.raises(ModelNameError, match=words):
        load_weights(model, "net.pt")
    assert_same_state(model, built(seed=2))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (built(), "holds more than tensors"),
        (FIRST, "holds a Tensor"),
        ({}, "keys too few: one.weight"),
        ({3: FIRST}, "1 keys too many: 3"),
    ],
)
def test_a_file_of_something_else_is_refused(content: Any, words: str):
    torch.save(content, "net.pt")
    with pytest.raises(ModelNameError, match=words):
        load_weights(built(), "net.pt")
