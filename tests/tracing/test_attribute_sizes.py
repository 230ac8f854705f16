"""Sizes that the code takes from attributes of modules: slicing sets these attributes, so widths may vary."""

import pytest
import torch
from torch import Tensor, nn

import cafenet
from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, frozen_reason, pooled, proven, reasons, sizes


def net(forward, channels: int = 8, out: int = 8, **parts) -> nn.Module:
    """A layer, what `forward` does with its channels, a head; ints among the parts are attributes."""
    return Forward(
        lambda net, x: net.head(pooled(forward(net, net.conv(x)))),
        conv=nn.Conv2d(3, channels, 1),
        head=nn.Linear(out, 5),
        **parts,
    )


@pytest.mark.parametrize("kind", [list, tuple])
def test_parts_by_a_list_of_sizes_vary_by_themselves(kind):
    """As in MixNet: each part has a convolution of its own kernel size."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.splits = kind([6, 4])
            self.small, self.large = nn.Conv2d(6, 5, 1), nn.Conv2d(4, 7, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            a, b = torch.split(x, self.splits, 1)
            return torch.cat([self.small(a), self.large(b)], 1)

    model = nn.Sequential(nn.Conv2d(3, 10, 1), Mixed(), nn.Conv2d(12, 5, 1))
    space = proven(model, IMAGE)
    assert sizes(space) == {"0": (6, 1), "0@6": (4, 1), "1.small": (5, 1), "1.large": (7, 1)}
    assert model[1].splits == kind([6, 4])
    slim = space.extract({"0": 2, "0@6": 3})
    assert slim[1].splits == kind([2, 3])
    assert (slim[0].out_channels, slim[1].small.in_channels, slim[1].large.in_channels) == (5, 2, 3)
    # 64 places with 3*10, 6*5, 4*7*9, 12*5
    assert space.flops() == 64 * (30 + 30 + 252 + 60)
    assert space.flops({"0": 2, "0@6": 3}) == 64 * (15 + 10 + 189 + 60)


def test_a_saved_model_has_its_list_again(tmp_path):
    model = net(lambda net, x: torch.cat(x.split(net.splits, 1)[::-1], 1), splits=[6, 2])
    slim = cafenet.trace(model, IMAGE).extract({"conv": 3, "conv@6": 1})
    cafenet.save(slim, tmp_path / "slim.pt")
    loaded = cafenet.load(tmp_path / "slim.pt", model)
    assert loaded.splits == slim.splits == [3, 1]
    assert isinstance(loaded.splits, list)
    x = torch.rand(2, 3, 8, 8)
    assert loaded(x).equal(slim(x))


def test_one_size_for_all_parts():
    """As in Res2Net: the i-th channels of all parts go together."""
    model = net(lambda net, x: sum(torch.split(x, net.width, 1)), out=4, width=4)
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 2)}
    assert space.extract({"conv": 6}).width == 3


def test_two_sizes():
    """As in FasterNet: a part is convolved, the rest is left as it is."""

    def forward(net, x):
        a, b = torch.split(x, [net.worked, net.left], 1)
        return torch.cat([net.work(a), b], 1)

    model = net(forward, worked=2, left=6, work=nn.Conv2d(2, 2, 1))
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (2, 1), "conv@2": (6, 1), "work": (2, 1)}


def test_a_size_and_the_rest():
    def forward(net, x):
        a, b = x.split([net.first, x.shape[1] - net.first], 1)
        return torch.cat([b, a], 1)

    space = proven(net(forward, first=3), IMAGE)
    assert sizes(space) == {"conv": (3, 1), "conv@3": (5, 1)}


def test_a_size_beside_one_in_the_code_freezes_that_part_only():
    space = proven(net(lambda net, x: torch.cat(x.split([net.first, 5], 1)[::-1], 1), first=3), IMAGE)
    assert sizes(space) == {"conv": (3, 1)}
    assert reasons(space)["conv"].startswith("does not let its width vary: ")


@pytest.mark.parametrize(
    "forward",
    [
        lambda net, x: torch.cat([x[:, net.first :], x[:, : net.first]], 1),
        lambda net, x: torch.cat([x.narrow(1, 0, net.first), x[:, net.first :].relu()], 1),
    ],
    ids=["slices", "narrow"],
)
def test_slices(forward):
    space = proven(net(forward, first=3), IMAGE)
    assert sizes(space) == {"conv": (3, 1), "conv@3": (5, 1)}
    assert space.extract({"conv": 1}).first == 1


def test_assigned_slice():
    def forward(net, x):
        x = x.clone()
        x[:, : net.first] = net.work(x[:, : net.first])
        return x

    space = proven(net(forward, first=3, work=nn.Conv2d(3, 3, 1)), IMAGE)
    assert "conv@3" in sizes(space)


@pytest.mark.parametrize(
    "forward",
    [
        lambda net, x: x.view(x.shape[0], net.width, 8, 8),
        lambda net, x: x.reshape((x.shape[0], net.width, -1)),
        lambda net, x: x.view(x.size()[:1] + (net.width, 64)),  # noqa: RUF005
        lambda net, x: x.flatten(1).unflatten(-1, (net.width, 64)),
    ],
    ids=["view", "reshape", "Size", "unflatten"],
)
def test_views(forward):
    space = proven(net(forward, width=8), TWO_IMAGES)
    assert sizes(space) == {"conv": (8, 1)}
    assert space.extract({"conv": 3}).width == 3


def test_linear_layer_of_gpt2():
    class Conv1D(nn.Module):
        def __init__(self, nf: int, nx: int) -> None:
            super().__init__()
            self.nf, self.nx = nf, nx
            self.weight, self.bias = nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.zeros(nf))

        def forward(self, x: Tensor) -> Tensor:
            size_out = x.size()[:-1] + (self.nf,)  # noqa: RUF005 - as it is written there
            return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(size_out)

    space = proven(nn.Sequential(Conv1D(8, 4), nn.ReLU(), Conv1D(5, 8)), torch.zeros(2, 3, 4))
    assert sizes(space) == {"0": (8, 1)}
    slim = space.extract({"0": 3})
    assert (slim[0].nf, slim[0].nx, slim[2].nf, slim[2].nx) == (3, 4, 5, 3)


@pytest.mark.parametrize(
    "forward",
    [
        lambda net, x: x.view(x.shape[0], net.width, -1) * net.width,
        lambda net, x: x.view(x.shape[0], net.width, -1) / net.width**0.5,
        lambda net, x: x.view(x.shape[0], net.width, -1) * (1 / net.width),
    ],
    ids=["product", "root", "fraction"],
)
def test_a_size_that_is_a_factor_too_freezes(forward):
    reason = frozen_reason(net(forward, width=8), IMAGE, "conv")
    assert reason == "is counted by self.width of the model, with which the code also computes values"


def test_an_attribute_that_happens_to_be_as_large_stays():
    """`places` is as large as the width is, and so is the number that is written into the code."""
    model = net(lambda net, x: x.view(x.shape[0], 8, net.places, -1), places=8)
    assert frozen_reason(model, IMAGE, "conv").startswith("does not let its width vary: ")
    free = net(lambda net, x: x.view(x.shape[0], x.shape[1], net.places, -1), places=8)
    assert proven(free, IMAGE).extract({"conv": 3}).places == 8


def test_code_that_takes_nothing_but_an_int():
    def forward(net, x):
        if type(net.width) is not int:
            raise TypeError("width must be an int")
        return x.relu()

    assert sizes(proven(net(forward, width=8), IMAGE)) == {"conv": (8, 1)}


def test_one_attribute_for_two_layers_ties_them():
    def forward(net, x):
        y = net.other(x).view(x.shape[0], net.width, -1).mean(2)
        return y[:, :, None, None] + net.third(x.view(x.shape[0], net.width, 8, 8))

    model = net(forward, width=8, other=nn.Conv2d(8, 8, 1), third=nn.Conv2d(8, 8, 1))
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 1)}


def test_the_same_space_twice():
    model = net(lambda net, x: torch.cat(x.split(net.splits, 1)[::-1], 1), splits=[6, 2])
    assert (
        cafenet.trace(model, IMAGE).full_widths == cafenet.trace(model, IMAGE).full_widths == {"conv": 6, "conv@6": 2}
    )
