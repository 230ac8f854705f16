"""Embeddings: the features of a table are channels, its rows are not."""

import torch
from torch import nn

from tests.helpers.networks import Forward, frozen_reason, proven, reasons, sizes

TOKENS = torch.arange(10).view(2, 5)


def test_features_are_searched_and_rows_stay():
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 5))
    space = proven(model, TOKENS)
    assert sizes(space) == {"0": (8, 1), "1": (12, 1)}
    assert reasons(space) == {"3": "is an output of the model"}
    # 10 tokens with 8*12 + 12*5; looking up is free
    assert space.flops() == 10 * (96 + 60)
    # 20*8 + (8+1)*12 + (12+1)*5
    assert space.params() == 160 + 108 + 65
    slim = space.extract(channels={"0": [1, 6]})
    assert slim[0].weight.equal(model[0].weight[:, [1, 6]])
    assert (slim[0].embedding_dim, slim[0].num_embeddings) == (2, 20)


def test_sum_of_embeddings():
    """Words and positions: one width."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word = nn.Embedding(20, 8, padding_idx=0)
            self.place = nn.Embedding(5, 8)
            self.norm = nn.LayerNorm(8)
            self.hidden = nn.Linear(8, 6)
            self.head = nn.Linear(6, 3)

        def forward(self, tokens):
            places = torch.arange(tokens.shape[1], device=tokens.device)
            return self.head(self.hidden(self.norm(self.word(tokens) + self.place(places))).relu())

    space = proven(Words(), TOKENS)
    assert sizes(space) == {"word": (8, 1), "hidden": (6, 1)}


def test_table_that_is_indexed():
    """A relative position bias: rows are picked by a buffer of indices."""

    class Bias(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(4, 8)
            self.table = nn.Parameter(torch.randn(7, 8))
            self.register_buffer("rows", torch.tensor([0, 2, 4, 6, 1]))
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head((self.embed(x) + self.table[self.rows]).relu())

    space = proven(Bias(), torch.zeros(2, 5, 4))
    assert sizes(space) == {"embed": (8, 1)}
    assert space.extract({"embed": 3}).table.shape == (7, 3)


def test_bag_of_words_is_frozen():
    model = Forward(
        lambda net, x: net.head(net.hidden(net.bag(x)).relu()),
        bag=nn.EmbeddingBag(20, 8),
        hidden=nn.Linear(8, 6),
        head=nn.Linear(6, 3),
    )
    space = proven(model, TOKENS)
    assert sizes(space) == {"hidden": (6, 1)}
    assert space.extract({"hidden": 2}).bag.weight.shape == (20, 8)


def test_renormalised_table_freezes():
    """`max_norm` rescales rows in place, by a norm over the features."""
    model = nn.Sequential(nn.Embedding(20, 8, max_norm=1.0), nn.Linear(8, 5))
    assert "embedding_renorm_" in frozen_reason(model, TOKENS, "0")
