"""Random attention blocks: in place = extracted = masked, FLOPs equal an independent count, the model is unchanged."""

import random

import pytest
import torch
from torch import nn

from tests.helpers.networks import proven


class AnyBlock(nn.Module):
    """One attention and one MLP on an embedded stream, with every choice drawn from a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.num_heads, self.head_dim = draw.choice([2, 3, 4]), draw.choice([3, 4, 5])
        self.groups = draw.choice([1, 1, 2])  # query heads for each head of keys and values
        self.fused, self.gated = self.groups == 1 and draw.random() < 0.5, draw.random() < 0.5
        self.sized_by_stream = self.groups == 1 and draw.random() < 0.5
        self.kernel, self.masked = draw.random() < 0.5, draw.random() < 0.5
        self.crossed = not self.fused and draw.random() < 0.3
        inside = self.num_heads * self.head_dim
        stream = inside if self.sized_by_stream else draw.choice([8, 13])
        self.embed, self.norm = nn.Linear(6, stream), draw.choice([nn.LayerNorm, nn.RMSNorm])(stream)
        if self.fused:
            self.qkv = nn.Linear(stream, 3 * inside)
        else:
            self.query = nn.Linear(stream, self.groups * inside)
            self.key, self.value = nn.Linear(stream, inside), nn.Linear(stream, inside, bias=False)
        self.project = nn.Linear(self.groups * inside, stream)
        self.up = nn.Linear(stream, 2 * 14 if self.gated else 14)
        self.down, self.head = nn.Linear(14, stream), nn.Linear(stream, 3)
        is_biased = self.groups == 1 and draw.random() < 0.5
        self.table = nn.Parameter(torch.randn(9, self.num_heads)) if is_biased else None
        self.register_buffer("places", torch.arange(4)[:, None] - torch.arange(4) + 4)

    def forward(self, x):
        x = self.embed(x)
        n, t, c = x.shape
        normed = self.norm(x)
        size = c // self.num_heads if self.sized_by_stream else self.head_dim
        q, k, v = self.parts(normed, n, t, size)
        mask = torch.zeros(t, t).masked_fill(torch.ones(t, t).triu(1).bool(), -1e9) if self.masked else None
        if self.table is not None:
            bias = self.table[self.places.view(-1)].view(t, t, -1).permute(2, 0, 1)
            mask = bias if mask is None else bias + mask
        if self.kernel:
            out = nn.functional.scaled_dot_product_attention(q, k, v, mask)
        else:
            scores = q @ k.transpose(-1, -2) * 0.7
            out = (scores if mask is None else scores + mask).softmax(-1) @ v
        out = out.transpose(1, 2)
        x = x + self.project(out.reshape(n, t, c) if self.sized_by_stream else out.flatten(2))
        middle = self.up(x)
        return self.head(x + self.down(nn.functional.glu(middle, -1) if self.gated else middle.relu()))

    def parts(self, x, n, t, size):
        if self.fused:
            return self.qkv(x).reshape(n, t, 3, self.num_heads, size).permute(2, 0, 3, 1, 4).unbind(0)
        other = x.flip(1) if self.crossed else x
        q = self.query(x).view(n, t, -1, size).transpose(1, 2)
        k, v = (layer(other).view(n, t, self.num_heads, size).transpose(1, 2) for layer in (self.key, self.value))
        if self.groups == 1:
            return q, k, v
        return q, *(each[:, :, None].expand(n, -1, self.groups, t, size).flatten(1, 2) for each in (k, v))


@pytest.mark.parametrize("seed", range(30))
def test_random_attention(seed: int):
    torch.manual_seed(seed)
    block = AnyBlock(seed)
    space = proven(block, torch.zeros(1, 4, 6))
    heads = next(group for group in space.groups if group.divisor >= block.head_dim)
    assert heads.channels // heads.divisor == block.num_heads
    assert (heads.name == "embed") == block.sized_by_stream
    slim = space.extract({heads.name: heads.divisor})
    assert slim.num_heads == 1
