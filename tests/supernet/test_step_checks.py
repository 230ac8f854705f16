"""Mistakes in a training loop of the user's own end in one clear line; the user's own errors stay what they are."""

import logging
from typing import Any

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import BinError, BudgetError, CafeNetError, CheckpointError, TrainingError

BATCH = (torch.rand(8, 3, 6, 6), torch.arange(8) % 4)


def supernet(**options: Any) -> cafenet.Supernet:
    layers = (nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4))
    return cafenet.Supernet(nn.Sequential(*layers), torch.zeros(1, 3, 6, 6), **options)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (3, "a batch must be a pair (inputs, target) or a dict, but got int"),
        (
            (BATCH[0][:0], BATCH[1][:0]),
            "a batch must hold examples as tensors, but begins with one of shape [0, 3, 6, 6]",
        ),
        (("a", "b"), "a batch must hold examples as tensors, but has no tensor with a row for each"),
        ((BATCH[0], BATCH[1] + 9), "labels must lie in 0 to 3, the model's number of outputs, but lie in 9 to 12"),
        ((BATCH[0], BATCH[1].float()), "targets must be int64 class numbers of shape [8], but are torch.float32"),
    ],
)
def test_batches(batch: Any, message: str):
    with pytest.raises(TrainingError) as raised:
        supernet().step(batch, "cross_entropy")
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (None, "loss_fn must be a function of (output, target) or the name of a loss, but is None"),
        ("cross", "loss must be 'cross_entropy', 'bce', 'model' or a function"),
        (lambda output, target: 3.0, "a loss must be one number as a tensor, the mean over the batch, but is float"),
        (
            lambda output, target: output,
            "a loss must be one number as a tensor, the mean over the batch, but is a tensor",
        ),
    ],
)
def test_losses(loss: Any, message: str):
    with pytest.raises(TrainingError) as raised:
        supernet().step(BATCH, loss)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("counts", [3, "half", [1], [0, 1], [99, 99], [1.5, 2], [1, 2, 3], [-1, 1], [[1], [1, 2]]])
def test_widths(counts: Any):
    with pytest.raises(BinError, match="bin_counts must be a whole number for each of 2 groups, from 1 to at most"):
        supernet().step(BATCH, "cross_entropy", bin_counts=counts)


def test_a_width_as_a_list():
    assert supernet().step(BATCH, "cross_entropy", bin_counts=[2, 1]).pick.bin_counts.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"budget": 50}, BudgetError, 'a budget must be a text such as "50%", but is 50'),
        ({"budget": ["50%", 3]}, BudgetError, 'a budget must be a text such as "50%", but is 3'),
        (
            {"sharing": 3},
            BinError,
            r"sharing must be LocallyFree\(r\) or Bilateral\(\), or have their methods, but is 3",
        ),
        (
            {"choice": "race"},
            BinError,
            r"choice must be Race\(\) or Exact\(\), or have their method `best`, but is 'race'",
        ),
    ],
)
def test_options(options: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        supernet(**options)


def test_a_state_of_something_else():
    whole = supernet()
    for wrong in (None, 3, {}, torch.zeros(3)):
        with pytest.raises(
            CheckpointError, match="_extra_state must be the tensor of bytes that a supernet saved, but is"
        ):
            whole.load_state_dict({**whole.state_dict(), "_extra_state": wrong})


def test_the_users_own_error_is_preceded_by_a_line(caplog):
    def loss(output, target):
        raise KeyError("mask")

    with caplog.at_level(logging.ERROR, "cafenet"), pytest.raises(KeyError):
        supernet().step(BATCH, loss)
    assert caplog.messages == ["the loss raised KeyError in a step of the supernet: 'mask'; its traceback follows"]
    caplog.clear()
    with caplog.at_level(logging.ERROR, "cafenet"), pytest.raises(RuntimeError):
        supernet().step((torch.rand(8, 1, 6, 6), BATCH[1]), "cross_entropy")
    (line,) = caplog.messages
    assert line.startswith("the model raised RuntimeError in a step of the supernet: ")


@pytest.mark.parametrize("loggers", [3, [3], ["jsonl:/proc/x/y"], ["jsonl:a\0b"]])
def test_loggers_that_cannot_be_used(loggers: Any):
    with pytest.raises(TrainingError, match="logger"):
        supernet(budget="50%").search([BATCH], [BATCH], loggers=loggers, quiet=True)


def test_test_labels_without_outputs():
    """They would be scored as misses."""
    wrong = (BATCH[0], BATCH[1] + 5)
    options = cafenet.SearchOptions(algorithm=cafenet.RandomSearch(samples=2))
    for val, test in ((wrong, BATCH), (BATCH, wrong)):
        with pytest.raises(CafeNetError, match="labels"):
            supernet(budget="50%").search([BATCH], [val], test_data=[test], options=options, quiet=True)


def test_losses_of_the_search_after_a_loop():
    for loss in ("cross", 3, None):
        with pytest.raises(TrainingError, match="loss"):
            supernet(budget="50%").search([BATCH], [BATCH], loss=loss, quiet=True)
