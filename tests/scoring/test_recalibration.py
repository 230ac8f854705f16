"""Batch-norm statistics are those of the very subnet, averaged over batches; the supernet does not notice."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from cafenet.modules.batch_norm import has_statistics
from cafenet.scoring.examples import hold_examples
from cafenet.scoring.recalibration import PreparedSubnet, recalibrate_model
from tests.helpers.small_search import TRAIN, tiny
from tests.helpers.small_training import WithoutNorm, built, channels_of, supernet_of

IMAGES, _ = TRAIN.tensors
BATCHES = [IMAGES[:40], IMAGES[40:70], IMAGES[70:]]


def averaged_by_hand(slim, batches):
    """Means of batch means and of unbiased batch variances, layer by layer, each batch normalised by its own."""
    first, second = [], []
    for images in batches:
        x = slim.one(images)
        first.append((x.mean((0, 2, 3)), x.var((0, 2, 3))))
        mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
        x = (x - mean[:, None, None]) / (variance[:, None, None] + slim.norm_one.eps).sqrt()
        x = x * slim.norm_one.weight[:, None, None] + slim.norm_one.bias[:, None, None]
        y = slim.two(x.relu())
        second.append((y.mean((0, 2, 3)), y.var((0, 2, 3))))
    return {
        f"norm_{name}.running_{kind}": torch.stack([each[number] for each in pairs]).mean(0)
        for name, pairs in (("one", first), ("two", second))
        for number, kind in ((0, "mean"), (1, "var"))
    }


@pytest.mark.parametrize("candidate", [0, 1, 2])
@torch.no_grad()
def test_statistics_are_averages_over_batches_of_this_subnet(candidate):
    supernet = tiny()
    subnet = supernet.candidates(np.array([4, 3]))[candidate]
    slim = supernet.space.extract(channels=channels_of(supernet.space, subnet), model=supernet.model)
    expected = averaged_by_hand(slim, BATCHES)
    prepared = PreparedSubnet(supernet, subnet)
    prepared.recalibrate(BATCHES)
    for name, value in expected.items():
        torch.testing.assert_close(prepared.buffers[name], value, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(slim.state_dict()[name], value, rtol=1e-2), name
    assert prepared.buffers["norm_one.num_batches_tracked"] == 3


class Keeping(nn.Module):
    """Keeps a table of its channels between runs in eval mode, as LeViT does with the biases of its attention."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.head = nn.Conv2d(3, 8, 1), nn.Linear(8, 4)
        self.scale = nn.Parameter(torch.rand(8))
        self.tables = {}

    def forward(self, x):
        if self.training or "scale" not in self.tables:
            self.tables["scale"] = self.scale.exp()
        return self.head(self.one(x).relu().mean((2, 3)) * self.tables["scale"])


@torch.no_grad()
def test_a_table_of_one_subnet_does_not_serve_another():
    model = built(Keeping).eval()
    supernet = supernet_of(model).eval()
    for num_bins in (2, 3):
        for subnet in supernet.candidates(np.array([num_bins])):
            channels = channels_of(supernet.space, subnet)
            expected = supernet.space.extract(channels=channels)(IMAGES[:5])
            assert torch.equal(PreparedSubnet(supernet, subnet).run(IMAGES[:5]), expected)
            assert torch.equal(supernet.space.run(IMAGES[:5], channels=channels), expected)
    assert model.tables == supernet.model.tables == {}


@torch.no_grad()
def test_a_second_recalibration_begins_anew():
    supernet = tiny()
    once, twice = (PreparedSubnet(supernet, supernet.full()) for _ in range(2))
    once.recalibrate(BATCHES)
    twice.recalibrate([images * 5 + 1 for images in BATCHES])
    twice.recalibrate(BATCHES)
    for name, value in once.buffers.items():
        assert torch.equal(twice.buffers[name], value)


@torch.no_grad()
def test_the_prepared_subnet_runs_as_the_slim_model_with_these_statistics():
    supernet = tiny()
    subnet = supernet.candidates(np.array([4, 3]))[1]
    slim = supernet.space.extract(channels=channels_of(supernet.space, subnet), model=supernet.model).eval()
    prepared = PreparedSubnet(supernet, subnet)
    prepared.recalibrate(BATCHES)
    for name, value in prepared.buffers.items():
        slim.get_buffer(name).copy_(value)
    supernet.model.eval()
    torch.testing.assert_close(prepared.run(IMAGES), slim(IMAGES), rtol=1e-5, atol=1e-6)
    kept = {name: value.clone() for name, value in prepared.buffers.items()}
    prepared.run(IMAGES + 3)
    assert all(torch.equal(value, kept[name]) for name, value in prepared.buffers.items())


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_of_the_supernet_changes(fails):
    supernet = tiny()
    supernet.model.norm_one.momentum, supernet.model.norm_two.momentum = 0.3, None
    supernet.model.norm_one.eval()
    supernet.model.dropout.eval()
    state = copy.deepcopy(supernet.state_dict())
    modes = [module.training for module in supernet.modules()]
    assert len(set(modes)) == 2
    random = torch.get_rng_state(), supernet.generator.get_state()
    prepared = PreparedSubnet(supernet, supernet.candidates(np.array([4, 3]))[1])
    if fails:
        with pytest.raises(RuntimeError, match="channels"):
            prepared.recalibrate([IMAGES, IMAGES[:, :1]])
    else:
        prepared.recalibrate(BATCHES)
        prepared.run(IMAGES)
    assert [module.training for module in supernet.modules()] == modes
    assert (supernet.model.norm_one.momentum, supernet.model.norm_two.momentum) == (0.3, None)
    assert all(torch.equal(value, state[name]) for name, value in supernet.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random[0])
    assert all(parameter.grad is None for parameter in supernet.parameters())


def test_dropout_is_off_whatever_the_mode():
    supernet = tiny().train()
    supernet.model.dropout.p = 0.9
    first, second = (PreparedSubnet(supernet, supernet.full()) for _ in range(2))
    supernet.model.head.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    seen = []
    first.recalibrate(BATCHES[:1])
    second.recalibrate(BATCHES[:1])
    assert torch.equal(*seen)
    assert (seen[0] != 0).double().mean() > 0.5


@torch.no_grad()
def test_a_plain_model_is_recalibrated_in_place():
    model = tiny().model.train()
    model.norm_one.eval()
    expected = averaged_by_hand(model, TRAIN.tensors[0].split(32))
    weights = {name: value.clone() for name, value in model.named_parameters()}
    random = torch.get_rng_state()
    recalibrate_model(model, hold_examples(TRAIN, "data"), batch_size=32)
    for name, value in expected.items():
        torch.testing.assert_close(model.get_buffer(name), value, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(value, weights[name]) for name, value in model.named_parameters())
    assert (model.training, model.norm_one.training, model.norm_one.momentum) == (True, False, 0.1)
    assert torch.equal(torch.get_rng_state(), random)


def test_buffers_of_two_subnets_are_their_own():
    supernet = tiny()
    left, right = (PreparedSubnet(supernet, supernet.full()) for _ in range(2))
    before = {name: value.clone() for name, value in right.buffers.items()}
    left.recalibrate(BATCHES)
    assert all(torch.equal(value, before[name]) for name, value in right.buffers.items())
    assert not torch.equal(left.buffers["norm_one.running_mean"], before["norm_one.running_mean"])


def test_a_model_without_statistics():
    supernet = supernet_of(built(WithoutNorm))
    assert not has_statistics(supernet.model)
    prepared = PreparedSubnet(supernet, supernet.full())
    prepared.recalibrate(BATCHES)
    assert prepared.buffers == {}


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        (nn.BatchNorm2d(3), True),
        (nn.Sequential(nn.BatchNorm1d(3)), True),
        (nn.BatchNorm2d(3, track_running_stats=False), False),
        (nn.InstanceNorm2d(3), False),
        (nn.InstanceNorm2d(3, track_running_stats=True), True),
        (nn.GroupNorm(1, 3), False),
    ],
)
def test_which_norms_have_statistics(norm, expected):
    assert has_statistics(norm) == expected


def test_norms_that_keep_no_statistics_stay_as_they_are():
    model = built()
    model.norm_two = nn.BatchNorm2d(12, track_running_stats=False)
    supernet = supernet_of(model)
    prepared = PreparedSubnet(supernet, supernet.full())
    prepared.recalibrate(BATCHES)
    assert {name.partition(".")[0] for name in prepared.buffers} == {"norm_one"}
    assert supernet.model.norm_two.momentum == 0.1
