"""A small supernet on CIFAR-10 itself, end to end."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import cafenet
from cafenet.space.bins import flops_sensitive_bins
from cafenet.supernet.candidate_choice import Race
from cafenet.supernet.sharing import LocallyFree
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.train import train_supernet
from cafenet.training.config import TrainConfig
from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig
from tests.helpers.small_training import log_of, sampling

TRAIN_SET = Path(__file__).parents[3] / "shared" / "data" / "cifar10" / "train.npz"


def convolution(channels_in: int, channels_out: int) -> nn.Sequential:
    """A convolution of stride 2 with its batch norm."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    )


@pytest.mark.skipif(not TRAIN_SET.exists(), reason=f"the data set is not there: {TRAIN_SET}")
def test_the_loss_falls_on_cifar10(tmp_path):
    with np.load(TRAIN_SET) as arrays:
        images, labels = arrays["images"][:2048], arrays["labels"][:2048]
    inputs = torch.from_numpy(images).permute(0, 3, 1, 2).float().div(255).sub(0.5).div(0.25).contiguous()
    examples = TensorDataset(inputs, torch.from_numpy(labels).long())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(48, 10))
    model = nn.Sequential(convolution(3, 16), convolution(16, 32), convolution(32, 48), *head)
    space = cafenet.trace(model, inputs[:1])
    supernet = Supernet(model, space, flops_sensitive_bins(space, 2), LocallyFree(1), choice=Race())
    config = TrainConfig(
        epochs=4,
        batch_size=64,
        optimizer=OptimizerConfig(lr=0.1, options={"nesterov": True}),
        schedule=ScheduleConfig("cosine", warmup_epochs=0.25),
        log_every=1,
    )
    result = train_supernet(supernet, examples, config, sampling=sampling(), directory=tmp_path, quiet=True)
    losses = [line["loss"] for line in log_of(tmp_path)]
    assert (result.steps, result.finished, len(losses)) == (128, True, 128)
    assert 2.0 < np.mean(losses[:5]) < 2.8  # log(10) is 2.3
    assert np.mean(losses[-20:]) < np.mean(losses[:5]) - 0.3
    assert all(bool(tensor.isfinite().all()) for tensor in supernet.state_dict().values())
