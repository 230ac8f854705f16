"""Files of weights: what fits is loaded, anything else is refused in one line and leaves the model as it was."""

from typing import Any

import pytest
import torch

from cafenet.errors import ModelNameError
from cafenet.models import load_weights
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
