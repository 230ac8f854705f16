"""Every parameter is in a group's slots, or an entry of `frozen` says why it is not."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import cafenet
from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, pooled, reasons, unexplained


class Scaled(nn.Module):
    """A factor for everything, a table of positions, and a norm behind a layer that keeps its width."""

    def __init__(self) -> None:
        super().__init__()
        self.factor, self.table = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(8, 8))
        self.free = nn.Conv2d(3, 6, 1)
        self.kept = nn.Conv2d(6, 4, 1)
        self.norm = nn.BatchNorm2d(4)
        self.map = nn.Conv2d(4, 1, 1)
        self.unused = nn.Linear(3, 2)

    def forward(self, x):
        x = self.norm(self.kept(self.free(x) * self.factor + self.table))
        return x, self.map(x)


def test_entries_for_what_no_layer_explains():
    space = cafenet.trace(Scaled(), IMAGE)
    assert unexplained(space) == set()
    assert reasons(space)["factor"] == "has a single value"
    assert reasons(space)["table"] == "meets a dimension of fixed size in add"
    explained = {entry.name: set(entry.parameters) for entry in space.frozen}
    assert explained["kept"] == {"kept.bias", "norm.weight", "norm.bias", "map.weight"}
    assert explained["map"] == {"map.bias"}
    assert explained["unused"] == {"unused.weight", "unused.bias"}


@pytest.mark.parametrize(
    "reparametrise", [parametrizations.orthogonal, parametrizations.weight_norm, parametrizations.spectral_norm]
)
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_reparametrised_layers_are_in_a_list(reparametrise, layer: int):
    """One whose weight comes from an op without a rule was in none, as it creates no channels that are known."""
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 6, 1), nn.Conv2d(6, 4, 1), nn.Conv2d(4, 5, 1))
    reparametrise(model[layer])
    space = cafenet.trace(model, IMAGE)
    assert unexplained(space) == set()
    names = {group.name for group in space.groups} | reasons(space).keys()
    assert names == {"0", "1", "2", "3"}
    if reparametrise is parametrizations.orthogonal:
        assert "which has no rule; give one with" in reasons(space)[str(layer)]


def test_a_parameter_that_the_code_writes_through():
    model = Forward(
        lambda net, x: net.head(pooled(net.conv(x)) * torch.sort(net.scale).values),
        conv=nn.Conv2d(3, 8, 1),
        scale=nn.Parameter(torch.rand(8)),
        head=nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 5)),
    )
    space = cafenet.trace(model, TWO_IMAGES)
    assert unexplained(space) == set()
    assert reasons(space)["scale"].startswith("flows into aten.sort.default")
