"""A slim model from an own loop has the statistics of its own channels, not those of the supernet."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import cafenet
from cafenet.errors import TrainingError
from tests.helpers.small_training import Plain, assert_same_state, built


@dataclass
class Found:
    channels: dict


@pytest.fixture
def supernet():
    model = built(Plain)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.fill_(50.0)  # as stale as can be
    return cafenet.Supernet(model, cafenet.trace(model, torch.zeros(1, 3, 4, 4)))


@pytest.fixture
def found(supernet):
    return Found({group.name: [0, 2, 5] for group in supernet.space.groups})


DATA = TensorDataset(3 + 2 * torch.randn(256, 3, 4, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(256))


def test_statistics_are_those_of_the_data(supernet, found):
    slim = supernet.slim(found, DATA)
    before = {name: value.clone() for name, value in slim.state_dict().items()}
    norm = next(module for module in slim.modules() if isinstance(module, nn.BatchNorm2d))
    conv = next(module for module in slim.modules() if isinstance(module, nn.Conv2d))
    values = conv(DATA.tensors[0]).transpose(0, 1).flatten(1)
    torch.testing.assert_close(norm.running_mean, values.mean(1), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(norm.running_var, values.var(1), atol=1e-2, rtol=1e-2)
    assert not slim.training
    assert all(torch.equal(value, slim.state_dict()[name]) for name, value in before.items())


def test_weights_are_the_supernets_and_the_supernet_stays(supernet, found):
    before = {name: value.clone() for name, value in supernet.model.state_dict().items()}
    slim = supernet.slim(found, DATA)
    plain = supernet.space.extract(channels=found.channels, model=supernet.model)
    for (name, one), other in zip(slim.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other), name
    assert all(torch.equal(value, supernet.model.state_dict()[name]) for name, value in before.items())


def test_a_loader_and_a_list_of_batches_give_the_same(supernet, found):
    loader = DataLoader(DATA, 64)
    assert_same_state(supernet.slim(found, loader), supernet.slim(found, list(loader)))


def test_only_as_many_examples_as_asked_are_read(supernet, found):
    read = []

    def batches():
        for batch in DataLoader(DATA, 64):
            read.append(len(batch[0]))
            yield batch

    supernet.slim(found, batches(), num_examples=100)
    assert read == [64, 64]


def test_data_that_are_empty_are_refused(supernet, found):
    with pytest.raises(TrainingError, match="needs data for the statistics of a slim model, but there are none"):
        supernet.slim(found, [])
