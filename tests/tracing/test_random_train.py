"""Layers that train mode skips at random: the same space whatever the global seeds, and no error."""

import random

import numpy as np
import pytest
import torch
from torch import nn

import cafenet
from tests.helpers.hugging_face import build
from tests.helpers.networks import IMAGE, Forward, pooled, proven, reasons, sizes

SEEDS = range(6)
DRAWS = {
    "torch": lambda: torch.rand([]) < 0.5,
    "python": lambda: random.random() < 0.5,
    "numpy": lambda: np.random.uniform(0, 1) < 0.5,
}


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def skipping(is_skipped, residual: bool) -> nn.Module:
    """A layer that training skips at random, and a parameter that only training uses, so that train mode is run."""

    def forward(net, x):
        x = net.conv(x)
        if not (net.training and is_skipped()):
            x = net.extra(x) + (x if residual else 0)
        if net.training:
            x = x * net.scale
        return net.head(nn.functional.dropout(pooled(x), 0.5, net.training))

    parts = {"conv": nn.Conv2d(3, 8, 1), "extra": nn.Conv2d(8, 8, 1), "scale": nn.Parameter(torch.ones(8, 1, 1))}
    return Forward(forward, **parts, head=nn.Linear(8, 5))


def spaces_at_all_seeds(model: nn.Module, inputs) -> cafenet.WidthSpace:
    found = []
    for seed in SEEDS:
        seed_all(seed)
        found.append(cafenet.trace(model, inputs))
    for space in found[1:]:
        assert sizes(space) == sizes(found[0])
        assert reasons(space) == reasons(found[0])
        assert space.layout.axes == found[0].layout.axes
        assert space.flops(space.min_widths) == found[0].flops(found[0].min_widths)
    return found[0]


@pytest.mark.parametrize("draw", list(DRAWS))
@pytest.mark.parametrize("on_meta", [True, False])
def test_one_random_skip(draw: str, on_meta: bool):
    model = skipping(DRAWS[draw], residual=True)
    if not on_meta:
        model = Forward(lambda net, x: net.inner(x if net.inner.conv(x).sum().item() > -1e9 else -x), inner=model)
    space = spaces_at_all_seeds(model, IMAGE)
    assert list(sizes(space).values()) == [(8, 1)]
    assert cafenet.verify(space, IMAGE).problems == []


@pytest.mark.parametrize("draw", list(DRAWS))
def test_skip_that_ties_what_eval_mode_does_not(draw: str):
    """Without a residual sum both layers could vary alone; a skip hands the channels of one to the other's reader."""
    model = skipping(DRAWS[draw], residual=False)
    space = spaces_at_all_seeds(model, IMAGE)
    assert sizes(space) == {"conv": (8, 1)}
    slim = space.extract({"conv": 3}).train()
    for seed in SEEDS:
        seed_all(seed)
        assert slim(torch.zeros(2, 3, 8, 8)).shape == (2, 5)


def test_generator_of_the_model():
    """Random numbers of the model's own: each run begins where the user's next one would."""
    for generator, draw in (
        (np.random.default_rng(0), lambda g: g.random() < 0.5),
        (torch.Generator().manual_seed(0), lambda g: torch.rand([], generator=g).item() < 0.5),
        (random.Random(0), lambda g: g.random() < 0.5),
    ):
        model = skipping(None, residual=True)
        model.generator = generator
        model._run = skipping(lambda m=model, d=draw: d(m.generator), residual=True)._run
        space = proven(model, IMAGE)
        assert sizes(space) == {"conv": (8, 1)}


def test_way_that_nobody_can_repeat():
    """Train mode that takes another way each time says nothing about widths; eval mode decides."""
    turns = iter(range(1000))
    model = skipping(lambda: next(turns) % 2 == 0, residual=True)
    assert sizes(proven(model, IMAGE)) == {"conv": (8, 1)}


def test_random_states_are_given_back():
    model = skipping(DRAWS["torch"], residual=True)
    seed_all(5)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    space = cafenet.trace(model, IMAGE)
    cafenet.verify(space, IMAGE)
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]
    assert torch.get_rng_state().equal(before[2])


@pytest.mark.filterwarnings("ignore")
def test_layer_drop_of_wav2vec2():
    model, inputs = build("wav2vec2")
    space = spaces_at_all_seeds(model, inputs)
    assert {name for name in sizes(space) if "intermediate_dense" in name} == {
        f"encoder.layers.{layer}.feed_forward.intermediate_dense" for layer in range(3)
    }
    assert cafenet.verify(space, inputs, trials=1).problems == []
