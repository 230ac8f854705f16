"""Transformers: heads and widths inside MLPs are searched, where the code takes the number of heads from somewhere.

Expected FLOPs are counted by hand for 5 tokens of 8 features, in 2 heads of 4, with 16 features inside the MLP.
"""

import pytest
import torch
from torch import nn

import cafenet
from tests.helpers.networks import Forward, proven, reasons, sizes

TOKENS = torch.zeros(2, 5, 8)
WAYS = ["view", "relative", "chunk", "separate"]


class Block(nn.Module):
    """Self-attention and an MLP; heads are cut in one of the usual ways."""

    def __init__(self, heads: str, fused: bool, num_heads: int | None = 2) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(8)
        if heads == "separate":
            self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        else:
            self.qkv = nn.Linear(8, 24)
        self.project = nn.Linear(8, 8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        q, k, v = self.parts(self.norm(x), *x.shape[:2])
        if self.fused:
            out = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            out = (q @ k.transpose(-1, -2) * 4**-0.5).softmax(-1) @ v
        x = x + self.project(out.transpose(1, 2).flatten(2))
        return self.head(x + self.down(nn.functional.gelu(self.up(x))))

    def parts(self, x, n, t):
        num = 2 if self.num_heads is None else self.num_heads  # None: the number is written into the code
        if self.heads == "separate":
            return [layer(x).view(n, t, num, 4).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        mixed = self.qkv(x)
        if self.heads == "view":
            return mixed.view(n, t, 3, num, 4).permute(2, 0, 3, 1, 4)
        if self.heads == "relative":
            return mixed.view(n, t, 3, -1, 4).permute(2, 0, 3, 1, 4).unbind(0)
        return [part.view(n, t, num, 4).transpose(1, 2) for part in mixed.chunk(3, -1)]


@pytest.mark.parametrize("heads", WAYS)
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_heads_are_units(heads: str, fused: bool, batch: int):
    """A head goes with its rows of queries, keys and values, and its columns of the projection."""
    space = proven(Block(heads, fused), TOKENS[:batch])
    name, channels = ("query", 8) if heads == "separate" else ("qkv", 24)
    assert sizes(space) == {name: (channels, channels // 2), "up": (16, 1)}
    assert "fixed size" in reasons(space)["down"]
    # per image 5 tokens with 8*24 + 8*8 + 2*8*16 + 8*3, and in 2 heads twice 5*5*4
    assert space.flops() == batch * (5 * (192 + 64 + 256 + 24) + 2 * 2 * 100)
    # one head: half of the queries, keys, values and products, and half of the projection
    assert space.flops({name: channels // 2, "up": 6}) == batch * (5 * (96 + 32 + 96 + 24) + 2 * 100)
    slim = space.extract({name: channels // 2})
    assert slim.num_heads == (2 if heads == "relative" else 1)
    assert slim.project.weight.shape == (8, 4)


def test_the_second_head_alone():
    """The slim model with one of the heads is the whole model in which the columns of the other one are zero."""
    model = Block("view", fused=True)
    space = cafenet.trace(model, TOKENS)
    kept = [part * 8 + 4 + feature for part in range(3) for feature in range(4)]
    slim = space.extract(channels={"qkv": kept, "up": range(16)})
    assert torch.equal(slim.qkv.weight, model.qkv.weight[kept])
    x = torch.randn(2, 5, 8)
    alone = slim(x)
    with torch.no_grad():
        model.project.weight[:, :4] = 0
    torch.testing.assert_close(alone, model(x))


@pytest.mark.parametrize("heads", ["view", "chunk", "separate"])
def test_a_number_of_heads_in_the_code(heads: str):
    """`view(n, t, 3, 2, 4)` fixes the number of heads, and the check run says so."""
    space = proven(Block(heads, fused=False, num_heads=None), TOKENS)
    assert sizes(space) == {"up": (16, 1)}
    layer = "query" if heads == "separate" else "qkv"
    assert "does not let its width vary" in reasons(space)[layer]
    assert space.flops({"up": 6}) == 2 * (5 * (192 + 64 + 96 + 24) + 400)


@pytest.mark.parametrize("heads", WAYS)
def test_width_of_the_residual_stream(heads: str):
    """With an embedding in front of it, the stream's width varies too."""
    model = nn.Sequential(nn.Linear(6, 8), Block(heads, fused=False))
    space = proven(model, torch.zeros(2, 5, 6))
    name, channels = ("1.query", 8) if heads == "separate" else ("1.qkv", 24)
    assert sizes(space) == {"0": (8, 1), name: (channels, channels // 2), "1.up": (16, 1)}
    slim = space.extract({"0": 5, name: channels // 2})
    assert slim.get_submodule(name).weight.shape == (channels // 2, 5)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("batch", [1, 2])
def test_encoder_layer(norm_first: bool, training: bool, batch: int):
    """In eval mode this layer has a fused fast path that no rule could follow; meta tensors do not take it."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    model = nn.Sequential(nn.Linear(6, 8), layer, nn.Linear(8, 3)).train(training)
    space = proven(model, torch.zeros(batch, 5, 6))
    assert sizes(space) == {"0": (8, 4), "1.linear1": (16, 1)}
    assert model.training is training
    # 5 tokens: 6*8 + 8*24 + 8*8 + 2*8*16 + 8*3, attention 2*2*100
    assert space.flops() == batch * (5 * (48 + 192 + 64 + 256 + 24) + 400)
    # one head, and its 4 features of the stream
    assert space.flops({"0": 4, "1.linear1": 6}) == batch * (5 * (24 + 48 + 16 + 48 + 12) + 200)
    slim = space.extract({"0": 4}).get_submodule("1.self_attn")
    assert (slim.embed_dim, slim.kdim, slim.vdim, slim.num_heads, slim.head_dim) == (4, 4, 4, 1, 4)


def test_freed_heads_vary_apart_from_the_stream():
    """`free_heads` gives attention a forward of its own, in which the heads of each layer are a group."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(nn.Linear(6, 8), layer, nn.Linear(8, 3)).eval()
    freed = cafenet.free_heads(model)
    tokens = torch.randn(2, 5, 6)
    torch.testing.assert_close(freed(tokens), model(tokens))
    space = proven(freed, torch.zeros(1, 5, 6))
    assert sizes(space) == {"0": (8, 1), "1.self_attn.in_proj_weight": (24, 12), "1.linear1": (16, 1)}


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
        encoder=nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 4, 16, batch_first=True), 1),
        head=nn.Linear(8, 3),
    ).eval()
    space = proven(model, torch.tensor([[3, 4, 5, 0], [6, 7, 0, 0]])[:batch])
    assert sizes(space) == {"embed": (8, 2), "encoder.layers.0.linear1": (16, 1)}
    assert torch.backends.mha.get_fastpath_enabled()
    # 4 tokens with 3*8*8 + 8*8 + 2*8*16, in 4 heads twice 4*4*2, and 8*3 for the first
    assert space.flops() == batch * (4 * (192 + 64 + 256) + 4 * 2 * 32 + 24)
    # 2 heads of 2 features
    assert space.flops({"embed": 4}) == batch * (4 * (48 + 16 + 128) + 2 * 2 * 32 + 12)


def test_encoder_and_decoder_with_masks():
    """A mask is added to the scores of every head, whatever their number is; `d_model` is the stream's width."""

    def forward(net, source, target):
        later = torch.ones(4, 4, dtype=torch.bool).triu(1)
        padding = torch.zeros(source.shape[:2], dtype=torch.bool)
        stream = net.transformer(net.embed(source), net.embed(target), tgt_mask=later, memory_key_padding_mask=padding)
        return net.head(stream)

    layers = {"embed": nn.Linear(3, 8), "transformer": nn.Transformer(8, 2, 1, 1, 16, batch_first=True)}
    model = Forward(forward, **layers, head=nn.Linear(8, 3))
    space = proven(model, (torch.zeros(2, 5, 3), torch.zeros(2, 4, 3)))
    assert sizes(space)["embed"] == (8, 4)
    assert space.extract({"embed": 4}).transformer.d_model == 4


@pytest.mark.parametrize("mask", [torch.zeros(2, 1, 5), torch.zeros(5, 5)], ids=["padding", "causal"])
def test_scores_with_an_added_mask(mask: torch.Tensor):
    """`baddbmm` adds a mask to the scores, as attention does whose weights are returned."""

    def forward(net, x):
        n, t, _ = x.shape
        parts = net.attention(net.embed(x)).view(n, t, 3, net.heads.numel(), 4)
        q, k, v = (each.transpose(1, 2).flatten(0, 1) for each in parts.unbind(2))
        added = mask if mask.ndim == 2 else mask[:, None].expand(n, len(net.heads), 1, t).flatten(0, 1)
        scores = torch.baddbmm(added.to(x.dtype), q, k.transpose(1, 2)).softmax(-1) * net.heads.repeat(n)[:, None, None]
        return net.head((scores @ v).unflatten(0, (n, -1)).transpose(1, 2).flatten(2))

    heads = nn.Parameter(torch.ones(3))
    model = Forward(forward, embed=nn.Linear(3, 8), attention=nn.Linear(8, 36), head=nn.Linear(12, 5))
    model.heads = heads
    space = proven(model, torch.zeros(2, 5, 3))
    assert sizes(space) == {"embed": (8, 1), "attention": (36, 12)}


def test_attention_module_ties_its_heads_to_its_features():
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
    assert sizes(space) == {"embed": (8, 4), "after": (12, 1)}
    slim = space.extract({"embed": 4, "after": 3})
    assert (slim.attention.embed_dim, slim.attention.num_heads, slim.attention.head_dim) == (4, 1, 4)


class WindowLike(nn.Module):
    """Attention whose code takes the size of a head, and of its result, from the width of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 4
        self.embed, self.qkv, self.project = nn.Linear(6, 16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.table, self.head = nn.Parameter(torch.randn(5, 5, 4)), nn.Linear(16, 3)

    def forward(self, x):
        x = self.embed(x)
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.num_heads, c // self.num_heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * 0.5 + self.table.permute(2, 0, 1)
        return self.head(x + self.project((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c)))


def test_heads_that_take_their_size_from_the_stream():
    """Such heads are tied to the stream: a head of 4 goes with 4 features, and with its column of the table."""
    space = proven(WindowLike(), torch.zeros(1, 5, 6))
    assert sizes(space) == {"embed": (16, 4)}
    # 5 tokens with 6*8 + 8*24 + 8*8 + 8*3, in 2 heads twice 5*5*4
    assert space.flops({"embed": 8}) == 5 * (48 + 192 + 64 + 24) + 2 * 2 * 100
    slim = space.extract({"embed": 8})
    assert (slim.num_heads, tuple(slim.table.shape)) == (2, (5, 5, 2))


class TalkingHeads(WindowLike):
    """As in CaiT: a linear layer mixes the scores of all heads, which it reads with other strides."""

    def __init__(self) -> None:
        super().__init__()
        self.talk = nn.Linear(4, 4)

    def forward(self, x):
        x = self.embed(x)
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.num_heads, c // self.num_heads).permute(2, 0, 3, 1, 4)
        scores = self.talk((q @ k.transpose(-2, -1)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.head(x + self.project((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c)))


def test_talking_heads():
    """The check run keeps two heads: of one head the strides differ, and PyTorch would run other ops for `talk`."""
    space = proven(TalkingHeads(), torch.zeros(1, 5, 6))
    assert sizes(space)["embed"] == (16, 4)
    assert tuple(space.extract({"embed": 8}).talk.weight.shape) == (2, 2)


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
