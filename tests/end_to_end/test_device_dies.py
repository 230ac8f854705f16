"""A device that dies in the middle of a search ends it in one line; a second start goes on with what it answered."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import cafenet
from cafenet.errors import DeploymentError


class Phone:
    """A device that takes a millisecond for blocks of 4 channels, and is gone from a question on."""

    file_format = "pt2"

    def __init__(self, dies_at=math.inf):
        self.asked, self.dies_at = 0, dies_at

    def __call__(self, file):
        self.asked += 1
        if self.asked >= self.dies_at:
            raise ConnectionError("the phone has gone")
        weights = [each for each in torch.export.load(file).state_dict.values() if each.ndim == 4]
        return sum(math.ceil(each.shape[0] / 4) * math.ceil(each.shape[1] / 4) for each in weights)


def searched(phone, place):
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 12, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    data = TensorDataset(torch.randn(64, 1, 4, 4), torch.arange(64) % 2)
    settings = cafenet.LatencyConfig(runtime=phone, retries=0, cache=str(place / "phone.jsonl"))
    supernet = cafenet.SupernetConfig(bins="uniform", num_bins=3)
    options = cafenet.SearchOptions(
        latency=settings, supernet=supernet, algorithm=cafenet.RandomSearch(samples=3), stages=cafenet.StagesConfig()
    )
    return cafenet.search(
        nn.Sequential(*layers, nn.Linear(12, 2)),
        *(data, data),
        "70% latency",
        epochs=1,
        finetune=False,
        options=options,
        directory=place / "search",
        quiet=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("dies_at", [5, 11])
def test_a_second_start_goes_on(dies_at, tmp_path):
    with pytest.raises(DeploymentError, match=r"must answer with milliseconds, but the phone has gone \(1 times\)"):
        searched(Phone(dies_at), tmp_path)
    phone = Phone()
    result = searched(phone, tmp_path)
    assert result.costs["latency_ms"] <= 0.7 * 16  # 4 and 12 blocks
    fresh = Phone()
    (tmp_path / "fresh").mkdir()
    assert searched(fresh, tmp_path / "fresh").widths == result.widths
    assert phone.asked < fresh.asked  # what was answered before is kept
