"""Accuracy of a finished model: the numbers by hand, all examples, and the model left as it was."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from cafenet.errors import ScoringError
from cafenet.scoring.evaluation import evaluate, predictions


class Given(nn.Module):
    """Hands its inputs on as outputs."""

    def forward(self, x: Tensor) -> Tensor:
        return x


# The largest of 7 scores is class 3 in all three; class 0 is fifth, class 6 sixth, class 5 last.
SCORES = torch.tensor([[3.0, 5.0, 6.0, 9.0, 4.0, 1.0, 2.0]]).repeat(3, 1)


def test_top_1_and_top_5_by_hand():
    result = evaluate(Given(), TensorDataset(SCORES, torch.tensor([3, 0, 6])))
    assert result == {"accuracy": 1 / 3, "top5": 2 / 3, "num_examples": 3}


def test_top_5_needs_more_than_five_classes():
    result = evaluate(Given(), TensorDataset(SCORES[:, :5], torch.tensor([3, 0, 4])))
    assert result == {"accuracy": 1 / 3, "num_examples": 3}
    assert "top5" in evaluate(Given(), TensorDataset(SCORES[:, :6], torch.tensor([3, 0, 4])))


def test_attributes_by_hand():
    outputs = torch.tensor([[2.0, -1.0], [0.5, 1.0], [-3.0, -0.1], [4.0, -2.0]])
    targets = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 1.0]])
    result = evaluate(Given(), TensorDataset(outputs, targets))
    assert result == {"accuracy": 5 / 8, "per_attribute": [3 / 4, 2 / 4], "num_examples": 4}


def test_an_output_of_zero_says_no():
    assert evaluate(Given(), TensorDataset(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]])))["per_attribute"] == [
        1.0,
        0.0,
    ]


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_batches_change_nothing(batch_size):
    """A last batch that is smaller counts by its examples, not as one of equals."""
    scores = torch.eye(7)[torch.tensor([0, 1, 2, 3, 4])]
    data = TensorDataset(scores, torch.tensor([0, 1, 2, 3, 0]))
    assert evaluate(Given(), DataLoader(data, batch_size))["accuracy"] == 4 / 5


def test_a_list_of_batches_will_do():
    batches = [(SCORES[:1], torch.tensor([3])), (SCORES[:2], torch.tensor([0, 1]))]
    assert evaluate(Given(), batches) == {"accuracy": 1 / 3, "top5": 1.0, "num_examples": 3}


def test_predictions_are_in_order():
    outputs, targets = predictions(Given(), DataLoader(TensorDataset(torch.arange(6).view(6, 1), torch.arange(6)), 4))
    assert outputs.flatten().tolist() == targets.tolist() == list(range(6))


def test_inputs_of_several_tensors():
    class Two(nn.Module):
        def forward(self, x: Tensor, scale: Tensor) -> Tensor:
            return x * scale[:, None]

    batch = ([SCORES, torch.tensor([1.0, -1.0, 1.0])], torch.tensor([3, 5, 3]))
    assert evaluate(Two(), [batch])["accuracy"] == 1.0


@pytest.mark.parametrize("data", [[], DataLoader(TensorDataset(torch.zeros(0, 7), torch.zeros(0)), 4)], ids=type)
def test_no_data_is_an_error(data):
    with pytest.raises(ScoringError, match="evaluation data must hold at least one example, but is empty"):
        evaluate(Given(), data)


def test_the_model_is_in_eval_mode_and_left_as_it_was():
    model = nn.Sequential(nn.BatchNorm1d(7), nn.Dropout(0.9))
    model.train()
    model[1].eval()
    statistics = model[0].running_mean.clone()
    outputs, _ = predictions(model, TensorDataset(SCORES, torch.tensor([3, 3, 3])))
    torch.testing.assert_close(outputs, SCORES, atol=1e-3, rtol=0)  # of fresh statistics; in train mode all zero
    assert [module.training for module in model.modules()] == [True, True, False]
    assert torch.equal(model[0].running_mean, statistics)


def test_modes_are_restored_after_an_error():
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("broken")

    model = Broken()
    with pytest.raises(RuntimeError, match="broken"):
        evaluate(model, TensorDataset(SCORES, torch.tensor([3, 3, 3])))
    assert model.training


def test_nothing_is_kept_for_a_backward_pass():
    outputs, _ = predictions(nn.Linear(7, 2), TensorDataset(SCORES, torch.tensor([0, 0, 1])))
    assert not outputs.requires_grad
