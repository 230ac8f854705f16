"""Sizes of heads beside heads: in place = extracted = masked, and the scale of attention stays."""

from pathlib import Path

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import SlimFileError
from cafenet.space.importance import sort_by_importance
from tests.tracing.test_attention_blocks import AnyBlock


class Block(nn.Module):
    """Attention of 2 heads of 6 features on a stream of 5; the scale is stored, computed, or that of the kernel."""

    def __init__(self, scale: str, num_heads: int = 2) -> None:
        super().__init__()
        self.embed, self.qkv = nn.Linear(3, 5), nn.Linear(5, 3 * 6 * num_heads)
        self.proj, self.head = nn.Linear(6 * num_heads, 5), nn.Linear(5, 4)
        self.num_heads, self.head_dim, self.kind, self.scale = num_heads, 6, scale, 6**-0.5

    def forward(self, x):
        n, t, _ = x.shape
        x = self.embed(x)
        q, k, v = self.qkv(x).reshape(n, t, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        if self.kind == "kernel":
            out = nn.functional.scaled_dot_product_attention(q, k, v)
        elif self.kind == "stored":
            out = ((q * self.scale) @ k.transpose(-2, -1)).softmax(-1) @ v
        elif self.kind == "computed":
            out = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v
        else:  # by the size itself, which the root of the share does not make up for
            out = (q @ k.transpose(-2, -1) / (1.5 * q.shape[-1])).softmax(-1) @ v
        return self.head(x + self.proj(out.transpose(1, 2).reshape(n, t, -1)))


def sizes(space: cafenet.WidthSpace) -> dict[str, int]:
    return {group.name: group.channels for group in space.groups}


def traced(model: nn.Module, inputs: torch.Tensor) -> cafenet.WidthSpace:
    space = cafenet.trace(model, inputs, head_sizes=True)
    result = cafenet.verify(space, inputs, trials=3)
    assert result.problems == []
    return space


@pytest.mark.parametrize("scale", ["stored", "kernel", "computed"])
def test_both_vary(scale: str):
    space = traced(Block(scale), torch.zeros(1, 7, 3))
    assert sizes(space) == {"embed": 5, "qkv": 36, "qkv@head_size": 36}
    assert [group.divisor for group in space.groups] == [1, 18, 6]
    slim = space.extract({"embed": 5, "qkv": 18, "qkv@head_size": 12})
    assert (slim.num_heads, slim.head_dim, slim.qkv.out_features, slim.proj.in_features) == (1, 2, 6, 2)
    # 7 tokens: embed 3 * 5, qkv 5 * 6, proj 2 * 5, head 5 * 4 each; 2 products of 7 * 7 * 2
    assert space.flops([5, 18, 12]) == 7 * (15 + 30 + 10 + 20) + 2 * 7 * 7 * 2
    assert space.params([5, 18, 12]) == sum(parameter.numel() for parameter in slim.parameters())


def test_scale_of_the_kernel_stays():
    """Scores of 1 of 6 features are divided by 1 instead of the root of 6, so queries are divided by that root."""
    model = Block("kernel")
    space = cafenet.trace(model, torch.zeros(1, 7, 3), head_sizes=True)
    slim = space.extract({"embed": 5, "qkv": 36, "qkv@head_size": 6})
    torch.testing.assert_close(slim.qkv.weight[:2], model.qkv.weight[[0, 6]] * 6**-0.5)
    torch.testing.assert_close(slim.qkv.bias[:2], model.qkv.bias[[0, 6]] * 6**-0.5)
    assert torch.equal(slim.qkv.weight[2:], model.qkv.weight[[12, 18, 24, 30]])
    stored = cafenet.trace(Block("stored"), torch.zeros(1, 7, 3), head_sizes=True)
    assert stored.layout.scales == ()
    assert {slot.tensor for slot in space.layout.scales} == {"qkv.weight", "qkv.bias"}


def test_another_factor_freezes_sizes():
    space = traced(Block("by size"), torch.zeros(1, 7, 3))
    assert sizes(space) == {"embed": 5, "qkv": 36}
    reasons = {frozen.name: frozen.reason for frozen in space.frozen}
    assert "computes from the size of a head" in reasons["qkv@head_size"]


def test_one_head():
    """A single head cannot be dropped, but may get smaller."""
    space = traced(Block("kernel", num_heads=1), torch.zeros(1, 7, 3))
    assert sizes(space) == {"embed": 5, "qkv@head_size": 18}


def test_without_the_option_nothing_changes():
    assert sizes(cafenet.trace(Block("kernel"), torch.zeros(1, 7, 3))) == {"embed": 5, "qkv": 36}
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    assert sizes(cafenet.trace(network, torch.zeros(1, 3, 8, 8), head_sizes=True)) == {"0": 8}


def test_slim_file(tmp_path: Path):
    model, inputs = Block("kernel").eval(), torch.randn(1, 7, 3)
    space = cafenet.trace(model, inputs, head_sizes=True)
    slim = space.extract({"embed": 3, "qkv": 18, "qkv@head_size": 24})
    cafenet.save(slim, tmp_path / "slim.pt")
    loaded = cafenet.load(tmp_path / "slim.pt", Block("kernel").eval())
    assert torch.equal(loaded(inputs), slim(inputs))
    assert (loaded.num_heads, loaded.head_dim) == (1, 4)
    with pytest.raises(SlimFileError):
        cafenet.load(tmp_path / "slim.pt", Block("kernel", num_heads=3))


def test_sorting_keeps_the_function():
    model, inputs = Block("kernel").eval(), torch.randn(2, 7, 3)
    space = cafenet.trace(model, inputs[:1], head_sizes=True)
    torch.testing.assert_close(sort_by_importance(space)(inputs), model(inputs))


def test_multihead_attention():
    """Heads and their sizes are tied to the stream, whose width is their product."""
    layer = nn.TransformerEncoderLayer(12, 3, 20, batch_first=True)
    model = nn.Sequential(nn.Linear(5, 12), layer, nn.Linear(12, 4)).eval()
    space = traced(model, torch.zeros(1, 7, 5))
    assert sizes(space) == {"0": 12, "1.linear1": 20, "0@head_size": 12}
    slim = space.extract({"0": 8, "1.linear1": 20, "0@head_size": 6})
    attention = slim[1].self_attn
    assert (attention.num_heads, attention.head_dim, attention.embed_dim) == (2, 2, 4)


@pytest.mark.parametrize("seed", range(12))
def test_random_attention(seed: int):
    torch.manual_seed(seed)
    block = AnyBlock(seed)
    space = traced(block, torch.zeros(1, 4, 6))
    assert any(group.name.endswith("@head_size") for group in space.groups)
    half = {group.name: max(group.channels // group.divisor // 2, 1) * group.divisor for group in space.groups}
    slim = space.extract(half)
    assert sum(parameter.numel() for parameter in slim.parameters()) == space.params(half)
