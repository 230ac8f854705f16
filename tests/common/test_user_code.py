"""The user's own code that raises: its own exception, preceded by one line that says who called it."""

import logging

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from cafenet.errors import TrainingError
from cafenet.pipeline.options import SearchOptions
from cafenet.pipeline.search import search
from cafenet.scoring.evaluation import evaluate
from cafenet.scoring.scorer import ScoringConfig
from cafenet.searching.algorithms.evolution import Evolution
from tests.helpers.small_training import Plain, batch, built, config, data, supernet_of, trained

EXAMPLE = torch.zeros(1, 3, 4, 4)


class Mine(Exception):
    """An exception of the user's."""


class Raising(Dataset):
    """64 examples, of which one cannot be read."""

    def __init__(self, bad: int) -> None:
        self.bad, (self.images, self.labels) = bad, batch(64)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int):
        if index == self.bad:
            raise Mine(f"example {index}")
        return self.images[index], self.labels[index]


class LateLoss:
    """Raises after some calls."""

    def __init__(self, num_calls: int) -> None:
        self.left = num_calls

    def __call__(self, output, target):
        self.left -= 1
        if self.left < 0:
            raise Mine("no more")
        return functional.cross_entropy(output, target)


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.ERROR, logger="cafenet")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_data(num_workers, lines, tmp_path):
    # seed 2 reads example 41 in step 7 of 8
    with pytest.raises(Mine, match="example 41"):
        trained(supernet_of(), tmp_path, data=Raising(41), checkpoint_every=1, seed=2, num_workers=num_workers)
    (line,) = lines()
    assert line.startswith("the training data raised Mine in step 7 of 8 of the training; the last checkpoint is kept")
    assert str(tmp_path) in line
    assert torch.load(tmp_path / "supernet.pt", weights_only=True)["step"] == 6
    trained(supernet_of(), tmp_path, data=Raising(-1), checkpoint_every=1, seed=2)  # goes on from there
    assert torch.load(tmp_path / "supernet.pt", weights_only=True)["step"] == 8


def test_loss(lines):
    with pytest.raises(Mine, match="no more"):
        trained(supernet_of(), loss=LateLoss(4))
    (line,) = lines()
    assert line.startswith("the loss raised Mine in step ")
    assert line.endswith("of 8 of the training: no more; its traceback follows")


class LateForward(Plain):
    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        if self.training and float(x.sum()) > 1e6:
            raise Mine("too large")
        return super().forward(x)


def test_forward(lines):
    images, labels = batch(64)
    images[41] = 1e9
    supernet = supernet_of(built(LateForward))
    with pytest.raises(Mine, match="too large"):
        trained(supernet, data=torch.utils.data.TensorDataset(images, labels), seed=2)
    (line,) = lines()
    assert line.startswith("the model raised Mine in step 7 of 8 of the training: too large")


def found(**given):
    train_data, val_data = given.pop("train_data", data(64, 1)), given.pop("val_data", data(64, 2))
    scoring = ScoringConfig(calibration_size=48, batch_size=16, min_examples=16)
    options = SearchOptions(algorithm=Evolution(population=4, iterations=2), scoring=scoring)
    given = {"train": config(), "example_inputs": EXAMPLE, "options": options, "quiet": True, **given}
    given = {"trained": False, "finetune": False, **given}
    return search(built(), train_data, val_data, **given)


def test_metric(lines):
    def metric(output, target):
        raise Mine("metric")

    with pytest.raises(Mine, match="metric"):
        found(metric=metric)
    assert lines() == ["the metric raised Mine in the check before the search: metric; its traceback follows"]


def test_metric_of_a_width(lines):
    left = [3]

    def metric(output, target):
        left[0] -= 1
        if left[0] < 0:
            raise Mine("late")
        return (output.argmax(1) == target).double()

    with pytest.raises(Mine, match="late"):
        found(metric=metric)
    assert lines() == ["the metric raised Mine in the scoring of widths: late; its traceback follows"]


def test_validation_data(lines):
    with pytest.raises(Mine, match="example 63"):
        found(val_data=Raising(63))
    (line,) = lines()
    assert line.startswith("the validation data raised Mine in reading it into memory: example 63")


def test_evaluation_data(lines):
    with pytest.raises(Mine):
        evaluate(built(), Raising(3))
    assert lines()[0].startswith("the evaluation data raised Mine in an evaluation")


def test_evaluation_labels():
    images, labels = batch(16)
    with pytest.raises(Exception, match=r"labels of the evaluation data must lie in 0 to 3, .* but lie in"):
        evaluate(built(), torch.utils.data.TensorDataset(images, labels + 1))


class WithoutGradient(Plain):
    def forward(self, x):
        with torch.no_grad():
            return super().forward(x)


def test_a_forward_under_no_grad(lines):
    with pytest.raises(TrainingError, match=r"a loss must have a gradient, .* may run under torch.no_grad"):
        trained(supernet_of(built(WithoutGradient)))
    assert lines() == []


def test_a_frozen_model():
    model = built().requires_grad_(False)
    with pytest.raises(TrainingError, match="must have parameters to train, but requires_grad is False for all of its"):
        trained(supernet_of(model))


def test_a_meta_model():
    supernet = supernet_of()
    supernet.model.to("meta")
    with pytest.raises(TrainingError, match=r"must hold values, but its .* is on the meta device"):
        trained(supernet)


def test_pictures_in_a_worker():
    """An error of ours from a worker is one line, too."""
    examples = [(torch.zeros(3, 4, 4 + n % 2), n % 4) for n in range(64)]
    with pytest.raises(Exception, match=r"^examples of a batch must have one shape, but some are \[3, 4, 4\]"):
        trained(supernet_of(), data=examples, num_workers=1)


def test_the_users_own_loss_module_keeps_its_name(tmp_path):
    """A checkpoint belongs to the loss by its name."""
    trained(supernet_of(), tmp_path, loss=nn.CrossEntropyLoss(), max_steps=2)
    assert torch.load(tmp_path / "supernet.pt", weights_only=True)["identity"]["loss"] == "CrossEntropyLoss"
