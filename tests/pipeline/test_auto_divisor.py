"""`divisor="auto"`: the bins of a search follow the steps of its runtime, which a second start does not measure."""

import json
import math

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import cafenet
from cafenet.errors import BinError, DeploymentError
from cafenet.supernet.build import SupernetConfig, build_bins


class Phone:
    """A device that computes blocks of 8 channels."""

    file_format = "pt2"

    def __init__(self):
        self.asked = 0

    def __call__(self, file):
        self.asked += 1
        weights = [each for each in torch.export.load(file).state_dict.values() if each.ndim == 4]
        return 1 + sum(math.ceil(each.shape[0] / 8) * math.ceil(each.shape[1] / 8) for each in weights) / 10


def parts():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 24, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    data = TensorDataset(torch.randn(64, 1, 4, 4), torch.arange(64) % 2)
    return nn.Sequential(*layers, nn.Linear(24, 2)), data


def searched(phone, directory, **options):
    model, data = parts()
    chosen = cafenet.SearchOptions(
        supernet=SupernetConfig(divisor="auto"),
        latency=cafenet.LatencyConfig(runtime=phone),
        algorithm=cafenet.RandomSearch(samples=3),
        **options,
    )
    return cafenet.search(
        model, data, data, "60%", epochs=1, finetune=False, options=chosen, directory=directory, quiet=True
    )


def test_widths_are_on_the_steps_and_a_second_start_does_not_measure_them_again(tmp_path):
    phone = Phone()
    result = searched(phone, tmp_path / "kept")
    assert all(width % 8 == 0 for width in result.widths.values())
    assert result.costs["flops"] <= 0.6 * result.space.flops()
    kept = json.loads((tmp_path / "kept" / "divisor.json").read_text())
    assert kept["divisor"] == 8
    first = phone.asked
    again = searched(phone, tmp_path / "kept")
    assert again.widths == result.widths
    assert phone.asked - first <= first - 6  # six widths of the first start showed the steps


def test_a_device_that_does_not_answer_ends_the_search_before_any_training(tmp_path):
    def dead(file):
        raise ConnectionError("no route to the phone")

    with pytest.raises(DeploymentError, match="must answer with milliseconds, but no route to the phone"):
        searched(dead, tmp_path / "kept")
    assert not list(tmp_path.rglob("*.pt"))


def test_bins_need_a_number():
    model, _ = parts()
    space = cafenet.trace(model, torch.zeros(1, 1, 4, 4))
    with pytest.raises(BinError, match='divisor="auto" must be measured before there are bins'):
        build_bins(space, SupernetConfig(divisor="auto"))
    with pytest.raises(BinError, match="divisor must be"):
        SupernetConfig(divisor="automatic")
