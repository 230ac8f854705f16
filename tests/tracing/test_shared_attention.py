"""Attention that some models share or lack: keys and values of several layers, kernels of missing packages."""

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import ModelNameError
from tests.helpers.networks import proven


class SharedKeys(nn.Module):
    """Two layers of 2 heads of 3 features, whose queries meet the keys and values of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(4, 7), nn.Linear(7, 3)
        self.queries = nn.ModuleList(nn.Linear(7, 6) for _ in range(2))
        self.outs = nn.ModuleList(nn.Linear(6, 7) for _ in range(2))
        self.key, self.value, self.num_heads = nn.Linear(7, 6), nn.Linear(7, 6), 2

    def forward(self, x):
        x = self.embed(x)
        shape = (*x.shape[:2], self.num_heads, 3)
        k, v = (layer(x).view(shape).transpose(1, 2) for layer in (self.key, self.value))
        for query, out in zip(self.queries, self.outs, strict=True):
            q = query(x).view(shape).transpose(1, 2)
            mixed = (q @ k.transpose(-2, -1) * 0.5).softmax(-1) @ v
            x = x + out(mixed.transpose(1, 2).flatten(2))
        return self.head(x)


def test_shared_keys_tie_the_heads_of_all_layers():
    space = proven(SharedKeys(), torch.zeros(1, 5, 4))
    assert {(group.channels, group.divisor) for group in space.groups} == {(7, 1), (6, 3)}
    slim = space.extract([min(7, g.channels) if g.divisor == 1 else 3 for g in space.groups])
    assert (slim.num_heads, slim.queries[0].out_features, slim.queries[1].out_features) == (1, 3, 3)


def test_a_kernel_whose_package_is_missing():
    pytest.importorskip("transformers", reason="transformers is not installed")
    options = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    with pytest.raises(ModelNameError, match=r"(?i)flash") as caught:
        cafenet.load_model("hf:bert", attn_implementation="flash_attention_2", **options)
    assert "\n" not in str(caught.value)
