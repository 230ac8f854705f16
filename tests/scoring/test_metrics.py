"""Metrics, against arithmetic by hand."""

import math

import pytest
import torch

from cafenet.errors import ScoringError
from cafenet.scoring.metrics import accuracy, chance_accuracy, metric_by_name, negative_loss

OUTPUT = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 0.5]])


def test_accuracy_of_class_numbers():
    assert accuracy(OUTPUT, torch.tensor([0, 2, 0])).tolist() == [1.0, 0.0, 1.0]


def test_accuracy_of_attributes_is_the_share_of_right_ones():
    output = torch.tensor([[0.1, -0.1, 5.0, -5.0], [-1.0, -1.0, -1.0, -1.0]])
    for dtype in (torch.float32, torch.int64, torch.bool):
        target = torch.tensor([[1, 0, 0, 0], [0, 0, 0, 1]], dtype=dtype)
        values = accuracy(output, target)
        assert values.tolist() == [0.75, 0.75]
        assert values.dtype == torch.float64


def test_negative_loss_of_class_numbers():
    values = negative_loss(OUTPUT, torch.tensor([0, 2, 0]))
    expected = [
        2 - math.log(math.exp(2) + math.exp(1) + 1),
        1 - math.log(1 + math.exp(3) + math.exp(1)),
        1 - math.log(math.exp(1) + 1 + math.exp(0.5)),
    ]
    assert values.tolist() == pytest.approx(expected, rel=1e-6)
    assert values.dtype == torch.float64


def test_negative_loss_of_attributes():
    values = negative_loss(torch.tensor([[0.0, 2.0]]), torch.tensor([[1, 0]]))
    assert values.tolist() == pytest.approx([-(math.log(2) + math.log(1 + math.exp(2))) / 2], rel=1e-6)


def test_metrics_by_name():
    assert metric_by_name("accuracy") is accuracy
    assert metric_by_name("negative_loss") is negative_loss
    with pytest.raises(
        ScoringError,
        match=r"'accuracy', 'negative_loss', 'perplexity', 'token_accuracy' or a function of .*, but got 'acuracy'",
    ):
        metric_by_name("acuracy")


@pytest.mark.parametrize("metric", [accuracy, negative_loss])
@pytest.mark.parametrize(
    ("output", "target", "message"),
    [
        ((OUTPUT,), torch.zeros(3), "but got tuple and Tensor; pass a function"),
        (OUTPUT, [0, 1, 2], "but got Tensor and list; pass a function"),
        (OUTPUT, torch.zeros(2), r"but got \[3, 3\] and \[2\]"),
        (OUTPUT, torch.zeros(3, 2), r"but got \[3, 3\] and \[3, 2\]"),
        (OUTPUT[:, :, None], torch.zeros(3), r"but got \[3, 3, 1\] and \[3\]"),
        (OUTPUT[:, 0], torch.zeros(3), r"but got \[3\] and \[3\]"),
    ],
)
def test_outputs_that_metrics_by_name_do_not_know(metric, output, target, message):
    with pytest.raises(ScoringError, match=message):
        metric(output, target)


def test_chance_is_the_most_frequent_label():
    assert chance_accuracy(torch.tensor([0, 1, 1, 3])) == 0.5
    assert chance_accuracy(torch.arange(10)) == pytest.approx(0.1)
    # the first attribute is true for 3 of 4, the second for none
    assert chance_accuracy(torch.tensor([[1, 0], [1, 0], [1, 0], [0, 0]])) == pytest.approx((0.75 + 1.0) / 2)


def test_probabilities_of_classes():
    """With the loss `cross_entropy` a target of two dimensions is no list of attributes."""
    target = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.0, 1.0], [0.5, 0.25, 0.25]], dtype=torch.float64)
    assert metric_by_name("accuracy", "cross_entropy")(OUTPUT, target).tolist() == [1.0, 0.0, 1.0]
    expected = (target * OUTPUT.double().log_softmax(dim=1)).sum(dim=1)
    torch.testing.assert_close(
        metric_by_name("negative_loss", "cross_entropy")(OUTPUT, target), expected, rtol=1e-5, atol=0
    )
    assert chance_accuracy(target, "cross_entropy") == pytest.approx(2 / 3)
    labels = torch.tensor([0, 2, 0])
    for name in ("accuracy", "negative_loss"):
        assert torch.equal(metric_by_name(name, "cross_entropy")(OUTPUT, labels), metric_by_name(name)(OUTPUT, labels))
