"""Normalisations: their tensors and size attributes follow the channels that they scale."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.helpers.networks import IMAGE, TWO_IMAGES, Forward, frozen_reason, pooled, proven, reasons, sizes


def normed(norm: nn.Module, channels: int = 8) -> nn.Module:
    return Forward(
        lambda net, x: net.head(pooled(net.after(net.norm(net.conv(x)).relu()))),
        conv=nn.Conv2d(3, channels, 1),
        norm=norm,
        after=nn.Conv2d(channels, 6, 1),
        head=nn.Linear(6, 5),
    )


@pytest.mark.parametrize("x", [IMAGE, TWO_IMAGES], ids=["one image", "two images"])
@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm2d(8),
        nn.BatchNorm2d(8, affine=False),
        nn.BatchNorm2d(8, track_running_stats=False),
        nn.BatchNorm2d(8, affine=False, track_running_stats=False),
        nn.InstanceNorm2d(8),
        nn.InstanceNorm2d(8, affine=True),
        nn.InstanceNorm2d(8, track_running_stats=True),
        nn.InstanceNorm2d(8, affine=True, track_running_stats=True),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("error")
def test_every_channel_on_its_own(norm: nn.Module, x: torch.Tensor):
    """Such a channel does not care who else is there: the group does not mix."""
    space = proven(normed(norm), x)
    assert sizes(space) == {"conv": (8, 1), "after": (6, 1)}
    assert not space.group("conv").mixes
    slim = space.extract(channels={"conv": [0, 4, 7]}).norm
    assert slim.num_features == 3
    for name, tensor in norm.state_dict().items():
        assert slim.state_dict()[name].equal(tensor[[0, 4, 7]] if tensor.ndim else tensor)


@pytest.mark.parametrize("affine", [True, False])
def test_group_norm_loses_whole_groups(affine: bool):
    """4 groups of 2 channels: each pair has its own statistics and is one unit."""
    space = proven(normed(nn.GroupNorm(4, 8, affine=affine)), IMAGE)
    assert sizes(space) == {"conv": (8, 2), "after": (6, 1)}
    assert space.group("conv").unit_of_channel.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert not space.group("conv").mixes
    slim = space.extract({"conv": 6}).norm
    assert (slim.num_groups, slim.num_channels) == (3, 6)
    if affine:
        assert slim.weight.shape == slim.bias.shape == (6,)


@pytest.mark.parametrize("affine", [True, False])
def test_group_norm_with_a_channel_a_group(affine: bool):
    space = proven(normed(nn.GroupNorm(8, 8, affine=affine)), IMAGE)
    assert sizes(space)["conv"] == (8, 1)
    slim = space.extract({"conv": 3}).norm
    assert (slim.num_groups, slim.num_channels) == (3, 3)


def test_group_norm_with_one_group_cannot_lose_it():
    space = proven(normed(nn.GroupNorm(1, 8)), IMAGE)
    assert sizes(space) == {"after": (6, 1)}
    assert reasons(space)["conv"] == "all its channels are tied into one unit"


def test_functional_group_norm_keeps_its_groups():
    """`group_norm(x, 2)` in the code: both groups stay and shrink alike, so their statistics change."""
    model = normed(nn.Identity())
    model.norm = Forward(lambda net, x: functional.group_norm(x, 2))
    space = proven(model, IMAGE)
    assert sizes(space) == {"conv": (8, 2), "after": (6, 1)}
    assert [group.mixes for group in space.groups] == [True, False]


def test_one_group_norm_for_two_branches():
    """Without parameters nothing but the stored number of groups couples the branches."""
    model = Forward(
        lambda net, x: net.head(pooled(net.norm(net.a(x)))) + net.tail(pooled(net.norm(net.b(x)))),
        a=nn.Conv2d(3, 8, 1),
        b=nn.Conv2d(3, 8, 1),
        norm=nn.GroupNorm(4, 8, affine=False),
        head=nn.Linear(8, 5),
        tail=nn.Linear(8, 5),
    )
    assert sizes(proven(model, IMAGE)) == {"a": (8, 2)}


@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(affine: bool):
    model = Forward(
        lambda net, x: net.head(net.after(net.norm(pooled(net.conv(x)))).relu()),
        conv=nn.Conv2d(3, 8, 1),
        norm=nn.LayerNorm(8, elementwise_affine=affine),
        after=nn.Linear(8, 6),
        head=nn.Linear(6, 5),
    )
    space = proven(model, TWO_IMAGES)
    assert sizes(space) == {"conv": (8, 1), "after": (6, 1)}
    assert [group.mixes for group in space.groups] == [True, False]
    assert space.extract({"conv": 3}).norm.normalized_shape == (3,)


def test_layer_norm_of_flattened_channels():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.LayerNorm(288), nn.Linear(288, 5))
    space = proven(model, IMAGE, masked=False)
    assert sizes(space) == {"0": (8, 1)}
    assert space.extract({"0": 2})[2].normalized_shape == (72,)


def test_layer_norm_over_places_leaves_channels_alone():
    model = Forward(
        lambda net, x: net.head(net.norm(net.conv(x).flatten(2)).relu().mean(2)),
        conv=nn.Conv2d(3, 8, 1),
        norm=nn.LayerNorm(64),
        head=nn.Linear(8, 5),
    )
    space = proven(model, TWO_IMAGES)
    assert sizes(space) == {"conv": (8, 1)}
    assert not space.group("conv").mixes


def test_layer_norm_over_channels_and_places_freezes():
    model = normed(nn.LayerNorm([8, 8, 8]))
    space = proven(model, IMAGE)
    assert sizes(space) == {"after": (6, 1)}
    assert reasons(space)["conv"] == "is normalised together with other dimensions (in norm)"


def test_channels_last_layer_norm():
    """ConvNeXt's layer norm permutes, normalises and permutes back."""

    class ChannelsLast(nn.LayerNorm):
        def forward(self, x):
            return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    space = proven(normed(ChannelsLast(8)), TWO_IMAGES)
    assert sizes(space) == {"conv": (8, 1), "after": (6, 1)}
    assert space.extract({"conv": 5}).norm.normalized_shape == (5,)


def test_rms_norm():
    model = Forward(
        lambda net, x: net.head(net.norm(pooled(net.conv(x)))),
        conv=nn.Conv2d(3, 8, 1),
        norm=nn.RMSNorm(8),
        head=nn.Linear(8, 5),
    )
    space = proven(model, TWO_IMAGES, masked=False)
    assert sizes(space) == {"conv": (8, 1)}
    assert space.extract({"conv": 3}).norm.normalized_shape == (3,)


def test_hand_written_norm():
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1, 8, 1, 1))

        def forward(self, x):
            return self.scale * (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-5).sqrt()

    space = proven(normed(Norm()), TWO_IMAGES)
    assert [group.mixes for group in space.groups] == [True, False]
    assert space.extract({"conv": 5}).norm.scale.shape == (1, 5, 1, 1)


def test_standardised_weights():
    """Weight standardisation averages over the inputs of a filter, so those mix; the filters do not."""

    class Standardised(nn.Conv2d):
        def forward(self, x):
            mean, std = self.weight.mean((1, 2, 3), keepdim=True), self.weight.std((1, 2, 3), keepdim=True)
            return functional.conv2d(x, (self.weight - mean) / (std + 1e-5), self.bias)

    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), Standardised(8, 6, 3), nn.ReLU(), nn.Conv2d(6, 5, 3))
    space = proven(model, IMAGE)
    assert sizes(space) == {"0": (8, 1), "2": (6, 1)}
    assert [group.mixes for group in space.groups] == [True, False]


def test_size_attributes_of_other_modules_are_left_alone():
    """A user's module may have a `num_features` of its own that counts something else."""

    class Backbone(nn.Module):
        num_features = 512

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 1)
            self.register_buffer("mean", torch.zeros(8))
            self.register_buffer("var", torch.ones(8))
            self.head = nn.Linear(8, 5)

        def forward(self, x):
            return self.head(pooled(functional.batch_norm(self.conv(x), self.mean, self.var)))

    space = proven(Backbone(), IMAGE)
    slim = space.extract({"conv": 3})
    assert slim.num_features == 512
    assert slim.mean.shape == (3,)


def test_local_response_norm_freezes():
    assert frozen_reason(normed(nn.LocalResponseNorm(3)), IMAGE, "conv").startswith("is treated as space")


def test_softmax_over_channels_mixes():
    space = proven(normed(nn.Softmax(1)), IMAGE)
    assert [group.mixes for group in space.groups] == [True, False]
