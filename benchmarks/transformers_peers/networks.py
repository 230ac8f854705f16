"""The two small transformers of the benchmark, written as timm and nanoGPT write theirs."""

import torch
from torch import Tensor, nn

NUM_CLASSES, SIZE, PATCH = 10, 16, 4
NUM_CHARACTERS, LENGTH = 64, 64
FEATURES, HEADS, DEPTH, HIDDEN = 64, 4, 3, 256


class Attention(nn.Module):
    """Attention with queries, keys and values in one layer, as in timm; products are written out."""

    def __init__(self, features: int, num_heads: int, *, causal: bool) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, features // num_heads
        self.scale, self.causal = self.head_dim**-0.5, causal
        self.qkv, self.proj = nn.Linear(features, 3 * features), nn.Linear(features, features)

    def forward(self, x: Tensor) -> Tensor:
        """Every token looks at all tokens, or at those before it and itself."""
        batch, length, _ = x.shape
        query, key, value = self.qkv(x).reshape(batch, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        scores = (query * self.scale) @ key.transpose(-2, -1)
        if self.causal:
            later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        mixed = scores.softmax(dim=-1) @ value
        return self.proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    """Attention and an MLP, each behind a norm and beside a shortcut."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(FEATURES), Attention(FEATURES, HEADS, causal=causal)
        self.norm2 = nn.LayerNorm(FEATURES)
        self.fc1, self.fc2 = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens after this block."""
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class SmallViT(nn.Module):
    """Sorts images of 16x16 pixels in 16 patches, 2.5M FLOPs."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, FEATURES, PATCH, PATCH)
        self.places = nn.Embedding((SIZE // PATCH) ** 2, FEATURES)
        self.blocks = nn.Sequential(*(Block(causal=False) for _ in range(DEPTH)))
        self.norm, self.head = nn.LayerNorm(FEATURES), nn.Linear(FEATURES, NUM_CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the classes."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = x + self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(x)).mean(1))


class SmallGPT(nn.Module):
    """Continues texts of 64 characters, 11.3M FLOPs."""

    def __init__(self) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(NUM_CHARACTERS, FEATURES), nn.Embedding(LENGTH, FEATURES)
        self.blocks = nn.Sequential(*(Block(causal=True) for _ in range(DEPTH)))
        self.norm, self.head = nn.LayerNorm(FEATURES), nn.Linear(FEATURES, NUM_CHARACTERS, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        """Scores of the next character at every place."""
        x = self.characters(text) + self.places(torch.arange(text.shape[1], device=text.device))
        return self.head(self.norm(self.blocks(x)))
