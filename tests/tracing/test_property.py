"""Random networks out of the topologies that tracing knows: the oracle agrees with all of them."""

from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import cafenet
from tests.helpers.networks import Forward, contents

Block = tuple[nn.Module, int]
"""A block and how many channels come out of it: always a multiple of 4."""


def block(forward: Callable[..., Tensor], out: int, **layers: nn.Module) -> Block:
    return Forward(forward, **layers), out


def convolution(c: int, k: int) -> Block:
    return block(lambda net, x: net.conv(x).relu(), 4 * k, conv=nn.Conv2d(c, 4 * k, 3, padding=1))


def transposed(c: int, k: int) -> Block:
    up = nn.ConvTranspose2d(c, 4 * k, 3, padding=1, groups=2 if k == 2 else 1)
    return block(lambda net, x: net.up(x), 4 * k, up=up)


def residual(c: int, k: int) -> Block:
    inner = nn.Sequential(nn.Conv2d(c, 2 * k, 1), nn.BatchNorm2d(2 * k), nn.ReLU(), nn.Conv2d(2 * k, c, 3, padding=1))
    return block(lambda net, x: (x + net.inner(x)).relu(), c, inner=inner)


def depthwise(c: int, k: int) -> Block:
    multiplier = 2 if k == 3 else 1
    layer = nn.Conv2d(c, c * multiplier, 3, padding=1, groups=c)
    return block(
        lambda net, x: net.norm(net.layer(x)), c * multiplier, layer=layer, norm=nn.BatchNorm2d(c * multiplier)
    )


def grouped(c: int, k: int) -> Block:
    return block(lambda net, x: net.layer(x).relu(), 4 * k, layer=nn.Conv2d(c, 4 * k, 1, groups=2))


def squeeze_excite(c: int, k: int) -> Block:
    def forward(net, x):
        return x * net.widen(net.narrow(x.mean((2, 3))).relu()).sigmoid()[:, :, None, None]

    return block(forward, c, narrow=nn.Linear(c, k + 1), widen=nn.Linear(k + 1, c))


def spatial_gate(c: int, k: int) -> Block:
    return block(lambda net, x: x * net.gate(x).sigmoid(), c, gate=nn.Conv2d(c, 1, 3, padding=1))


def concat(c: int, k: int) -> Block:
    return block(lambda net, x: torch.cat([net.conv(x).relu(), x], 1), c + 4 * k, conv=nn.Conv2d(c, 4 * k, 1))


def chunk_and_concat(c: int, k: int) -> Block:
    def forward(net, x):
        left, right = x.chunk(2, 1)
        return torch.cat([right, net.conv(left).relu()], 1)

    out = c // 2 + 4 * (k - 1)
    return block(forward, c // 2 + out, conv=nn.Conv2d(c // 2, out, 1))


def gated_halves(c: int, k: int) -> Block:
    return block(lambda net, x: functional.glu(net.conv(x), 1), 4 * k, conv=nn.Conv2d(c, 8 * k, 1))


def shuffle(c: int, k: int) -> Block:
    def forward(net, x):
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)

    return block(forward, c) if k > 1 else (nn.ChannelShuffle(2), c)


def group_norm(c: int, k: int) -> Block:
    return nn.GroupNorm((2, 4)[k % 2], c, affine=k > 1), c


def layer_norm(c: int, k: int) -> Block:
    norm = nn.LayerNorm(c, elementwise_affine=k > 1)
    return block(lambda net, x: net.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), c, norm=norm)


def instance_norm(c: int, k: int) -> Block:
    return nn.InstanceNorm2d(c, affine=k > 1), c


def prelu(c: int, k: int) -> Block:
    return nn.PReLU(c if k > 1 else 1), c


def shared(c: int, k: int) -> Block:
    return block(lambda net, x: net.conv(net.conv(x).relu()) + x, c, conv=nn.Conv2d(c, c, 1))


def written_half(c: int, k: int) -> Block:
    def forward(net, x):
        x = x.clone()
        x[:, : x.shape[1] // 2].add_(net.conv(x))
        return x

    return block(forward, c, conv=nn.Conv2d(c, c // 2, 1))


def mirrored(c: int, k: int) -> Block:
    return block(lambda net, x: x + x.flip(1), c)


def space_to_channels(c: int, k: int) -> Block:
    if c > 24:
        return nn.Identity(), c
    return block(lambda net, x: functional.interpolate(functional.pixel_unshuffle(x, 2), scale_factor=2.0), 4 * c)


BLOCKS = [
    convolution,
    transposed,
    residual,
    depthwise,
    grouped,
    squeeze_excite,
    spatial_gate,
    concat,
    chunk_and_concat,
    gated_halves,
    shuffle,
    group_norm,
    layer_norm,
    instance_norm,
    prelu,
    shared,
    written_half,
    mirrored,
    space_to_channels,
]


class Stacked(nn.Module):
    """A stem, some blocks, and a classifier that always leaves one width to search."""

    def __init__(self, stem: int, chosen: list[tuple[Callable[[int, int], Block], int]], flatten: bool) -> None:
        super().__init__()
        self.stem, channels = nn.Conv2d(3, stem, 3, padding=1), stem
        self.blocks = nn.ModuleList()
        for make, k in chosen:
            layer, channels = make(channels, k)
            self.blocks.append(layer)
        self.flatten = flatten
        self.hidden = nn.Linear(channels * 16 if flatten else channels, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.blocks:
            x = layer(x)
        return self.head(self.hidden(x.flatten(1) if self.flatten else x.mean((2, 3))).relu())


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(
    stem=st.sampled_from([4, 8, 12]),
    chosen=st.lists(st.tuples(st.sampled_from(BLOCKS), st.integers(1, 3)), min_size=1, max_size=6),
    flatten=st.booleans(),
    batch=st.integers(1, 2),
)
def test_oracle_agrees(stem, chosen, flatten, batch):
    model = Stacked(stem, chosen, flatten)
    before, x = contents(model), torch.zeros(batch, 3, 4, 4)
    space = cafenet.trace(model, x)
    result = cafenet.verify(space, x, trials=2)
    assert result.problems == []
    assert not space.group("hidden").mixes
    assert contents(model) == before
    # No other block has a size in its code; which part of a shuffled dimension varies is ambiguous where it is small.
    if shuffle not in [make for make, _ in chosen]:
        assert not [entry for entry in space.frozen if "does not let its width vary" in entry.reason]
