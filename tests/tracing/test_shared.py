"""Modules and weights that are used more than once."""

import torch
from torch import nn

from tests.helpers.networks import IMAGE, Forward, pooled, proven, sizes, slots


def test_module_used_twice_in_a_row():
    """Its output is its own input: one width, squared in the weight."""
    model = Forward(
        lambda net, x: net.head(pooled(net.body(net.body(net.stem(x)).relu()))),
        stem=nn.Conv2d(3, 8, 1, bias=False),
        body=nn.Conv2d(8, 8, 1, bias=False),
        head=nn.Linear(8, 5, bias=False),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"stem": (8, 1)}
    assert slots(space, "stem") >= {("body.weight", 0), ("body.weight", 1)}
    # 64 places: 3*8 and twice 8*8; the body's weights count once
    assert space.flops() == 64 * (24 + 2 * 64) + 40
    assert space.params() == 24 + 64 + 40
    assert space.flops({"stem": 3}) == 64 * (9 + 2 * 9) + 15
    assert space.params({"stem": 3}) == 9 + 9 + 15


def test_module_used_on_two_branches_ties_them():
    model = Forward(
        lambda net, x: net.head(pooled(net.shared(net.a(x)) * net.shared(net.b(x)))),
        a=nn.Conv2d(3, 8, 1),
        b=nn.Conv2d(3, 8, 3, padding=1),
        shared=nn.Conv2d(8, 6, 1),
        head=nn.Linear(6, 5),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"a": (8, 1), "shared": (6, 1)}
    assert ("b.weight", 0) in slots(space, "a")


def test_module_under_two_names():
    shared = nn.Conv2d(8, 8, 1)
    model = nn.Sequential(nn.Conv2d(3, 8, 1), shared, nn.ReLU(), shared, nn.Conv2d(8, 5, 1))
    space = proven(model, IMAGE)
    assert sizes(space) == {"0": (8, 1)}
    slim = space.extract({"0": 3})
    assert slim[1] is slim[3]
    assert (slim[1].in_channels, slim[1].out_channels) == (3, 3)


def test_tied_weights_stay_tied():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 5))
    model[4].weight = model[2].weight
    space = proven(model, torch.zeros(2, 4))
    assert sizes(space) == {"0": (8, 1)}
    # 4*8+8, 8*8+8, the tied layer's bias 8, 8*5+5
    assert space.params() == 40 + 72 + 8 + 45
    slim = space.extract({"0": 3})
    assert slim[4].weight is slim[2].weight
    assert sum(parameter.numel() for parameter in slim.parameters()) == space.params({"0": 3}) == 15 + 12 + 3 + 20


def test_weight_used_transposed():
    """A tied autoencoder: the decoder's weight is the encoder's, transposed."""
    model = Forward(
        lambda net, x: nn.functional.linear(net.encoder(x).relu(), net.encoder.weight.t(), net.bias),
        encoder=nn.Linear(6, 8),
        bias=nn.Parameter(torch.zeros(6)),
    )
    space = proven(model, torch.zeros(2, 6))
    assert sizes(space) == {"encoder": (8, 1)}
    assert space.flops() == 2 * 2 * 48


def test_embedding_tied_to_the_output():
    model = Forward(
        lambda net, x: nn.functional.linear(net.body(net.table(x)).relu(), net.table.weight),
        table=nn.Embedding(20, 8),
        body=nn.Linear(8, 8),
    )
    space = proven(model, torch.arange(6).view(2, 3))
    assert sizes(space) == {"table": (8, 1)}
    assert slots(space, "table") == {("table.weight", 1), ("body.weight", 0), ("body.weight", 1), ("body.bias", 0)}


def test_batch_norm_used_twice_ties_its_inputs():
    model = Forward(
        lambda net, x: net.head(pooled(net.norm(net.a(x)))) + net.tail(pooled(net.norm(net.b(x)))),
        a=nn.Conv2d(3, 8, 1),
        b=nn.Conv2d(3, 8, 1),
        norm=nn.BatchNorm2d(8),
        head=nn.Linear(8, 5),
        tail=nn.Linear(8, 5),
    )
    assert sizes(proven(model, IMAGE)) == {"a": (8, 1)}


def test_weight_shared_by_two_plain_calls():
    """A feature pyramid: the same head on maps of two sizes."""
    model = Forward(
        lambda net, x: [net.head(net.tower(y).relu()) for y in (net.high(x), net.low(nn.functional.avg_pool2d(x, 2)))],
        high=nn.Conv2d(3, 8, 1),
        low=nn.Conv2d(3, 8, 1),
        tower=nn.Conv2d(8, 6, 1, bias=False),
        head=nn.Conv2d(6, 5, 1),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"high": (8, 1), "tower": (6, 1)}
    # on 64 and on 16 places: 3*8, 8*6 and 6*5
    assert space.flops() == 80 * (24 + 48 + 30)
