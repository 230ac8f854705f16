"""Weights that are computed from other parameters: frozen or right, never wrong."""

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize, prune

import cafenet
from tests.helpers.networks import TWO_IMAGES, Forward, proven, reasons, sizes


def net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 1), nn.Conv2d(4, 5, 1)
    )


class Bounded(nn.Module):
    def forward(self, weight):
        return weight.tanh()


def old_weight_norm(layer: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(layer)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "reparametrise",
    [parametrizations.weight_norm, parametrizations.spectral_norm, old_weight_norm, nn.utils.spectral_norm],
    ids=["weight_norm", "spectral_norm", "old weight_norm", "old spectral_norm"],
)
def test_norms_of_weights_are_followed(reparametrise, training: bool):
    """Both sides of the layer vary; spectral norm's buffers, which it updates in train mode, follow."""
    model = net().train(training)
    reparametrise(model[2])
    model(TWO_IMAGES)
    space = proven(model, TWO_IMAGES)
    assert sizes(space) == {"0": (8, 1), "2": (6, 1), "4": (4, 1)}
    assert set(reasons(space)) == {"5"}
    widths = {"0": 3, "2": 2, "4": 2}
    slim = space.extract(widths).eval()
    assert (slim[2].in_channels, slim[2].out_channels, tuple(slim[2].weight.shape)) == (3, 2, (2, 3, 3, 3))
    x = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(slim(x), in_eval(model, lambda: space.run(x, widths)))
    assert slim.train()(x).shape == (2, 5, 6, 6)


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_weight_norm_along_any_dimension(dim: int | None):
    model = net()
    parametrizations.weight_norm(model[2], dim=dim)
    assert sizes(proven(model, TWO_IMAGES)) == {"0": (8, 1), "2": (6, 1), "4": (4, 1)}


@pytest.mark.parametrize("make", [lambda: nn.Conv2d(6, 6, 3, groups=6), lambda: nn.ConvTranspose2d(6, 4, 2)])
def test_weight_norm_of_other_layers(make):
    layer = make()
    model = nn.Sequential(nn.Conv2d(3, 6, 1), layer, nn.ReLU(), nn.Conv2d(layer.out_channels, 5, 1))
    parametrizations.weight_norm(layer)
    space = proven(model, TWO_IMAGES, masked=False)
    expected = {"0": (6, 1)} if layer.groups > 1 else {"0": (6, 1), "1": (4, 1)}
    assert sizes(space) == expected


def test_weight_norm_equals_a_layer_without_the_dropped_channels():
    """The length of what is left: the same as if the dropped inputs had been zero from the start."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    parametrizations.weight_norm(model[1])
    g, v = (getattr(model[1].parametrizations.weight, f"original{number}").detach() for number in range(2))
    slim = cafenet.trace(model, torch.zeros(1, 3)).extract({"0": 2})
    torch.testing.assert_close(slim[1].weight, g * v[:, :2] / v[:, :2].norm(dim=1, keepdim=True))


@pytest.mark.parametrize("training", [True, False])
def test_orthogonal_weights_freeze_their_layer(training: bool):
    """A part of an orthogonal matrix is not orthogonal: both sides of the layer stay."""
    model = net().train(training)
    parametrizations.orthogonal(model[2])
    space = proven(model, TWO_IMAGES)
    assert sizes(space) == {"4": (4, 1)}
    assert "0" in reasons(space)
    assert "has no rule" in reasons(space)["2"]


def in_eval(model: nn.Module, run):
    before = model.training
    try:
        model.eval()
        return run()
    finally:
        model.train(before)


def test_elementwise_parametrization_is_followed():
    class Positive(nn.Module):
        def forward(self, weight):
            return weight.exp()

    model = net()
    parametrize.register_parametrization(model[2], "weight", Positive())
    space = proven(model, TWO_IMAGES)
    assert [group.channels for group in space.groups] == [8, 6, 4]
    slim = space.extract(space.min_widths)
    assert slim[2].weight.shape == (1, 1, 3, 3)


def test_pruned_weights_are_followed():
    """torch's own pruning multiplies by a mask before every forward."""
    model = net()
    prune.l1_unstructured(model[2], "weight", 0.3)
    space = proven(model, TWO_IMAGES)
    assert [group.channels for group in space.groups] == [8, 6, 4]
    x = torch.rand(2, 3, 8, 8)
    widths = [3, 2, 2]
    torch.testing.assert_close(space.extract(widths)(x), space.run(x, widths))


@pytest.mark.parametrize(
    "reparametrise",
    [
        lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
        lambda layer: parametrize.register_parametrization(layer, "weight", Bounded()),
    ],
    ids=["pruned", "parametrised"],
)
def test_names_and_attributes_are_those_of_the_layers(reparametrise):
    """Also `groups`, without which a depthwise convolution could not vary."""
    model = Forward(
        lambda net, x: net.head(net.wide(net.up(net.depthwise(net.conv(x)).relu()).relu()).mean((2, 3))),
        conv=nn.Conv2d(3, 8, 3),
        depthwise=nn.Conv2d(8, 16, 3, groups=8),
        up=nn.ConvTranspose2d(16, 6, 2),
        wide=nn.Conv2d(6, 12, 1),
        head=nn.Linear(12, 5),
    )
    for layer in (model.conv, model.depthwise, model.up, model.wide, model.head):
        reparametrise(layer)
    space = proven(model, TWO_IMAGES)
    assert sizes(space) == {"conv": (8, 1), "up": (6, 1), "wide": (12, 1)}
    assert set(reasons(space)) == {"head"}
    slim = space.extract({"conv": 3, "up": 2, "wide": 4})
    depthwise = slim.depthwise
    assert (depthwise.in_channels, depthwise.out_channels, depthwise.groups) == (3, 6, 3)
    assert [layer.out_channels for layer in (slim.conv, slim.up, slim.wide)] == [3, 2, 4]
    assert (slim.up.in_channels, slim.wide.in_channels, slim.head.in_features) == (6, 2, 4)
    assert (slim.conv.weight.shape, slim.up.weight.shape) == ((3, 3, 3, 3), (6, 2, 2, 2))


class Tables(nn.Module):
    """Buffers of a parameter's shape that make channels of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(16, 4))
        self.register_buffer("a", torch.randn(16, 4))
        self.register_buffer("b", torch.randn(16, 4))
        self.head = nn.Linear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cat([functional.linear(x, each).relu() for each in (self.w, self.a, self.b)], dim=1))


def test_buffers_that_are_no_masks_have_their_own_names():
    assert cafenet.trace(Tables(), torch.zeros(1, 4)).full_widths == {"w": 16, "a": 16, "b": 16}
