"""Transformers: the widths inside the MLPs are searched, attention keeps its sizes, each with a reason."""

import pytest
import torch
from torch import nn

from tests.helpers.networks import Forward, proven, reasons, sizes

TOKENS = torch.zeros(2, 5, 8)


class Block(nn.Module):
    """8 features in 2 heads, 16 inside the MLP; heads are cut in one of the usual ways."""

    def __init__(self, heads: str, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.project = nn.Linear(8, 8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        n, t, _ = x.shape
        mixed = self.qkv(self.norm(x))
        if self.heads == "view":
            q, k, v = mixed.view(n, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        elif self.heads == "relative":
            q, k, v = mixed.view(n, t, 3, 2, mixed.shape[-1] // 6).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            q, k, v = (part.view(n, t, 2, -1).transpose(1, 2) for part in mixed.chunk(3, -1))
        if self.fused:
            out = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            out = (q @ k.transpose(-1, -2) * 4**-0.5).softmax(-1) @ v
        x = x + self.project(out.transpose(1, 2).reshape(n, t, -1))
        return self.head(x + self.down(nn.functional.gelu(self.up(x))))


@pytest.mark.parametrize("heads", ["view", "relative", "chunk"])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_hand_written_attention(heads: str, fused: bool, batch: int):
    space = proven(Block(heads, fused), TOKENS[:batch])
    assert sizes(space) == {"up": (16, 1)}
    assert "batched matrix product (attention)" in reasons(space)["qkv"]
    assert "fixed size" in reasons(space)["down"]
    # per image 5 tokens with 8*24 + 8*8 + 2*8*16 + 8*3, and in 2 heads twice 5*5*4
    assert space.flops() == batch * (5 * (192 + 64 + 256 + 24) + 2 * 2 * 100)
    assert space.flops({"up": 6}) == batch * (5 * (192 + 64 + 96 + 24) + 400)


@pytest.mark.parametrize("heads", ["view", "relative", "chunk"])
def test_width_of_the_residual_stream(heads: str):
    """With an embedding in front of it, only code that fixes the head size keeps the stream's width as well."""
    model = nn.Sequential(nn.Linear(6, 8), Block(heads, fused=False))
    model[1].head = nn.Linear(8, 3)
    space = proven(model, torch.zeros(2, 5, 6))
    assert sizes(space) == {"0": (8, 1), "1.up": (16, 1)}
    assert space.extract({"0": 5}).get_submodule("1.qkv").weight.shape == (24, 5)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("batch", [1, 2])
def test_encoder_layer(norm_first: bool, training: bool, batch: int):
    """In eval mode this layer has a fused fast path that no rule could follow; meta tensors do not take it."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    model = nn.Sequential(nn.Linear(6, 8), layer, nn.Linear(8, 3)).train(training)
    space = proven(model, torch.zeros(batch, 5, 6))
    assert sizes(space) == {"1.linear1": (16, 1)}
    found = reasons(space)
    assert "nn.MultiheadAttention" in found["0"]
    assert "nn.MultiheadAttention" in found["1.self_attn.out_proj"]
    assert "attention" in found["1.self_attn.in_proj_weight"]
    assert model.training is training
    # 5 tokens: 6*8 + 8*24 + 8*8 + 2*8*16 + 8*3, attention 2*2*100
    assert space.flops() == batch * (5 * (48 + 192 + 64 + 256 + 24) + 400)


def test_fast_path_of_the_slim_encoder_layer():
    """The slim layer in eval mode, where PyTorch's fused kernel runs, gives what the run in place gives."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    space = proven(layer, TOKENS)
    tokens = torch.randn(2, 5, 8)
    slim = space.extract({"linear1": 7})
    with torch.inference_mode():
        fast = slim(tokens)
    torch.testing.assert_close(fast, space.run(tokens, {"linear1": 7}), atol=1e-6, rtol=1e-5)


def test_encoder_and_decoder():
    space = proven(
        nn.Transformer(8, 2, 1, 1, 16, batch_first=True), (torch.zeros(2, 5, 8), torch.zeros(2, 4, 8)), masked=True
    )
    assert sizes(space) == {"encoder.layers.0.linear1": (16, 1), "decoder.layers.0.linear1": (16, 1)}


@pytest.mark.parametrize("batch", [1, 2])
def test_encoder_with_padding(batch: int):
    """In eval mode PyTorch packs what is not padding into a nested tensor, and runs each layer as one op."""
    model = Forward(
        lambda net, x: net.head(net.encoder(net.embed(x), src_key_padding_mask=x == 0)[:, 0]),
        embed=nn.Embedding(20, 8),
        encoder=nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1),
        head=nn.Linear(8, 3),
    ).eval()
    space = proven(model, torch.tensor([[3, 4, 5, 0], [6, 7, 0, 0]])[:batch])
    assert sizes(space) == {"encoder.layers.0.linear1": (16, 1)}
    assert torch.backends.mha.get_fastpath_enabled()
    # 4 tokens with 3*8*8 + 8*8 + 2*8*16, in 2 heads twice 4*4*4, and 8*3 for the first
    assert space.flops() == batch * (4 * (192 + 64 + 256) + 2 * 2 * 64 + 24)


def test_attention_module_keeps_all_its_sizes():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(6, 8)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.after = nn.Linear(8, 12)
            self.head = nn.Linear(12, 3)

        def forward(self, x):
            x = self.embed(x)
            return self.head(self.after(self.attention(x, x, x, need_weights=False)[0]).relu())

    space = proven(Net(), torch.zeros(1, 5, 6))
    assert sizes(space) == {"after": (12, 1)}
    found = reasons(space)
    assert "nn.MultiheadAttention" in found["embed"]
    assert "nn.MultiheadAttention" in found["attention.out_proj"]
    slim = space.extract({"after": 3})
    assert (slim.attention.embed_dim, slim.attention.head_dim) == (8, 4)


def test_gated_mlp():
    """SwiGLU: gate and value are halves of one layer, or two layers of one width."""
    one = Forward(
        lambda net, x: net.down(torch.mul(*net.up(x).chunk(2, -1))), up=nn.Linear(8, 24), down=nn.Linear(12, 8)
    )
    assert sizes(proven(one, TOKENS)) == {"up": (24, 2)}
    two = Forward(
        lambda net, x: net.down(nn.functional.silu(net.gate(x)) * net.up(x)),
        gate=nn.Linear(8, 12),
        up=nn.Linear(8, 12),
        down=nn.Linear(12, 8),
    )
    assert sizes(proven(two, TOKENS)) == {"gate": (12, 1)}
