"""Losses by name and by hand, and labels that fit the outputs."""

import math

import pytest
import torch
from torch.utils.data import TensorDataset

from cafenet.errors import TrainingError
from cafenet.training.losses import check_target, loss_by_name
from tests.helpers.small_training import NUM_CLASSES, batch, data, log_of, supernet_of, trained


def test_cross_entropy_with_label_smoothing_by_hand():
    output = torch.tensor([[0.0, math.log(3.0)]])  # probabilities 1/4 and 3/4
    assert loss_by_name("cross_entropy")(output, torch.tensor([1])).item() == pytest.approx(-math.log(0.75))
    # with 0.2, the labels are 0.1 and 0.9
    smooth = loss_by_name("cross_entropy", label_smoothing=0.2)(output, torch.tensor([1]))
    assert smooth.item() == pytest.approx(-0.9 * math.log(0.75) - 0.1 * math.log(0.25))


def test_bce_by_hand():
    output = torch.tensor([[0.0, math.log(3.0)]])  # probabilities 1/2 and 3/4
    target = torch.tensor([[1, 1]])
    expected = -(math.log(0.5) + math.log(0.75)) / 2
    assert loss_by_name("bce")(output, target).item() == pytest.approx(expected)
    # with 0.2, ones are 0.9
    smooth = -(math.log(0.5) + 0.9 * math.log(0.75) + 0.1 * math.log(0.25)) / 2
    assert loss_by_name("bce", label_smoothing=0.2)(output, target).item() == pytest.approx(smooth)


def test_unknown_losses_and_smoothing():
    with pytest.raises(TrainingError, match=r"must be 'cross_entropy', 'bce', 'model' or a function .* but got 'mse'"):
        loss_by_name("mse")
    for smoothing in (-0.1, 1.0):
        with pytest.raises(TrainingError, match="label_smoothing must lie in"):
            loss_by_name("cross_entropy", label_smoothing=smoothing)


SCORES = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("name", "output", "target", "message"),
    [
        ("cross_entropy", SCORES, torch.tensor([0, 3]), "labels must lie in 0 to 2, .* but lie in 0 to 3"),
        ("cross_entropy", SCORES, torch.tensor([-1, 2]), "but lie in -1 to 2"),
        (
            "cross_entropy",
            SCORES,
            torch.tensor([0.0, 1.0]),
            r"int64 class numbers of shape \[2\], but are torch.float32",
        ),
        ("cross_entropy", SCORES, torch.tensor([[0], [1]]), r"of shape \[2, 1\]"),
        ("cross_entropy", torch.zeros(2, 3, 5), torch.zeros(2, dtype=torch.int64), r"of shape \[2, 5\], but"),
        ("cross_entropy", {"scores": SCORES}, torch.tensor([0, 1]), "one output tensor .* but got dict and Tensor"),
        ("bce", SCORES, torch.tensor([0, 1]), r"the outputs' shape \[2, 3\], but have \[2\]"),
        ("bce", SCORES, torch.tensor([[1, -1, 1], [1, 1, 1]]), "zeros and ones, but lie in -1 to 1"),
    ],
)
def test_labels_that_do_not_fit(name, output, target, message):
    with pytest.raises(TrainingError, match=message):
        check_target(name, output, target)


def test_labels_that_fit():
    check_target("cross_entropy", SCORES, torch.tensor([0, 2]))
    check_target("cross_entropy", SCORES, torch.full((2, 3), 1 / 3))  # mixed labels, as probabilities
    check_target("cross_entropy", torch.zeros(2, 3, 5), torch.zeros(2, 5, dtype=torch.int64))
    check_target("bce", SCORES, torch.ones(2, 3, dtype=torch.int64))


def test_the_loop_uses_the_loss_it_was_given(tmp_path):
    with torch.no_grad():
        quiet = supernet_of()
        quiet.model.head.weight.zero_()
        quiet.model.head.bias.copy_(torch.tensor([0.0, 0.0, 0.0, math.log(3.0)]))
    labels = TensorDataset(batch(64)[0], torch.full((64,), 3))
    options = {"max_steps": 1, "label_smoothing": 0.4, "data": labels}
    trained(quiet, tmp_path, **options)
    # probabilities 1/6, 1/6, 1/6, 1/2; smoothed labels 0.1, 0.1, 0.1, 0.7
    expected = -0.7 * math.log(1 / 2) - 0.3 * math.log(1 / 6)
    assert log_of(tmp_path)[0]["loss"] == pytest.approx(expected, rel=1e-6)


def test_multi_label_training(tmp_path):
    inputs, labels = batch(64)
    several = torch.nn.functional.one_hot(labels, NUM_CLASSES)
    trained(supernet_of(), tmp_path, data=TensorDataset(inputs, several), loss="bce", epochs=6)
    losses = [line["loss"] for line in log_of(tmp_path)]
    assert losses[0] == pytest.approx(math.log(2), abs=0.2)
    assert sum(losses[-8:]) < 0.75 * sum(losses[:8])


def test_a_loss_of_the_users_own(tmp_path):
    def hinge(output, target):
        return torch.nn.functional.multi_margin_loss(output, target)

    trained(supernet_of(), tmp_path, loss=hinge, epochs=6)
    losses = [line["loss"] for line in log_of(tmp_path)]
    assert sum(losses[-8:]) < 0.5 * sum(losses[:8])


def test_smoothing_is_not_silently_dropped_for_a_loss_of_the_users_own():
    with pytest.raises(TrainingError, match="label_smoothing is for losses by name"):
        trained(supernet_of(), data=data(), loss=torch.nn.functional.cross_entropy, label_smoothing=0.1)
