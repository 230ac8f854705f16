"""Parameters that meet channels without a convolution: they join them."""

import torch
from torch import nn

from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, frozen_reason, pooled, proven, sizes, slots


def test_prelu_follows_its_channels():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.PReLU(8), nn.Conv2d(8, 6, 1), nn.PReLU(), nn.Conv2d(6, 5, 1))
    space = proven(model, IMAGE)
    assert sizes(space) == {"0": (8, 1), "2": (6, 1)}
    slim = space.extract(channels={"0": [2, 5], "2": [0, 1, 2]})
    assert (slim[1].num_parameters, slim[3].num_parameters) == (2, 1)
    assert slim[1].weight.equal(model[1].weight[[2, 5]])


def test_layer_scale():
    model = Forward(
        lambda net, x: net.head(pooled(net.conv(x) * net.scale[:, None, None] + net.shift)),
        conv=nn.Conv2d(3, 8, 1),
        scale=nn.Parameter(torch.full((8,), 0.1)),
        shift=nn.Parameter(torch.zeros(1, 8, 1, 1)),
        head=nn.Linear(8, 5),
    )
    space = proven(model, IMAGE)
    assert slots(space, "conv") >= {("scale", 0), ("shift", 1)}
    # 3*8 + 8 of the convolution, 8 and 8 of scale and shift, 8*5 + 5 of the head
    assert space.params() == 32 + 16 + 45
    assert space.params({"conv": 2}) == 8 + 4 + 15


def test_registered_buffer_follows_and_loose_tensor_freezes():
    model = Forward(
        lambda net, x: net.head(pooled(net.conv(x) * net.scale)), conv=nn.Conv2d(3, 8, 1), head=nn.Linear(8, 5)
    )
    model.register_buffer("scale", torch.rand(8, 1, 1))
    space = proven(model, IMAGE)
    assert space.extract({"conv": 3}).scale.equal(model.scale[:3])
    del model.scale
    model.scale = torch.rand(8, 1, 1)
    assert frozen_reason(model, IMAGE, "conv") == "meets a dimension of fixed size in mul"


def test_class_token_and_position_embedding():
    """A vision transformer without its attention: 16 patches of 2x2 places, one more token."""

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 8, 2, stride=2)
            self.token = nn.Parameter(torch.randn(1, 1, 8))
            self.position = nn.Parameter(torch.randn(1, 17, 8))
            self.hidden = nn.Linear(8, 12)
            self.back = nn.Linear(12, 8)
            self.head = nn.Linear(8, 5)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
            x = x + self.back(self.hidden(x).relu())
            return self.head(x[:, 0])

    for x in (IMAGE, TWO_IMAGES):
        space = proven(Tokens(), x)
        assert sizes(space) == {"patches": (8, 1), "hidden": (12, 1)}
        assert slots(space, "patches") >= {("token", 2), ("position", 2)}
    slim = space.extract({"patches": 3})
    assert (slim.token.shape, slim.position.shape) == ((1, 1, 3), (1, 17, 3))


def test_register_tokens():
    """Several learned tokens beside the patches: their number is no width."""

    def forward(net, x):
        x = net.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([net.tokens.expand(x.shape[0], -1, -1), x], 1).relu()
        return net.head(x[:, 4:].mean(1))

    model = Forward(
        forward,
        patches=nn.Conv2d(3, 8, 2, stride=2),
        tokens=nn.Parameter(torch.randn(1, 4, 8)),
        head=nn.Linear(8, 5),
    )
    space = proven(model, TWO_IMAGES)
    assert sizes(space) == {"patches": (8, 1)}
    assert space.extract({"patches": 2}).tokens.shape == (1, 4, 2)


def test_parameter_that_is_the_whole_map():
    """A learned bias for every channel and place: the places stay."""
    model = Forward(
        lambda net, x: net.head(pooled(net.conv(x) + net.bias)),
        conv=nn.Conv2d(3, 8, 1),
        bias=nn.Parameter(torch.randn(8, 8, 8)),
        head=nn.Linear(8, 5),
    )
    space = proven(model, IMAGE)
    assert space.extract(channels={"conv": [6]}).bias.equal(model.bias[[6]])


def test_one_parameter_for_two_widths_ties_them():
    model = Forward(
        lambda net, x: net.head(pooled(net.a(x) * net.scale)) + net.tail(pooled(net.b(x) * net.scale)),
        a=nn.Conv2d(3, 8, 1),
        b=nn.Conv2d(3, 8, 1),
        scale=nn.Parameter(torch.randn(8, 1, 1)),
        head=nn.Linear(8, 5),
        tail=nn.Linear(8, 5),
    )
    space = proven(model, IMAGE)
    assert sizes(space) == {"a": (8, 1)}
    assert ("b.weight", 0) in slots(space, "a")
