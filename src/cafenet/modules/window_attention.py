"""The window attentions of torchvision with a number of heads that does not depend on the width of their input.

torchvision computes the size of a head from the width of the input (Swin), or gives the output of the heads the shape
of the input (MaxViT). The forwards here read the stored `num_heads` and `head_dim` instead, and compute the same.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class SwinHeads(nn.Module):
    """torchvision's `ShiftedWindowAttention` whose heads may vary. `cafenet.free_heads` makes it from that one."""

    num_heads: int
    head_dim: int
    window_size: list[int]
    shift_size: list[int]
    attention_dropout: float
    dropout: float
    qkv: nn.Linear
    proj: nn.Linear
    relative_position_bias_table: Tensor
    relative_position_index: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Attends inside windows of an image, which may be shifted.

        Args:
            x: Features as (batch, height, width, channels).

        Returns:
            A tensor of the same shape.
        """
        batch, height, width, _ = x.shape
        tall, wide = self.window_size
        x = functional.pad(x, (0, 0, 0, -width % wide, 0, -height % tall))
        rows, columns = x.shape[1] // tall, x.shape[2] // wide
        shift = [
            0 if size >= full else by
            for by, size, full in zip(self.shift_size, (tall, wide), x.shape[1:3], strict=True)
        ]
        if any(shift):
            x = torch.roll(x, (-shift[0], -shift[1]), (1, 2))
        x = x.reshape(batch, rows, tall, columns, wide, x.shape[-1]).transpose(2, 3).flatten(3, 4).flatten(0, 2)
        x = self._attend(x, self._mask(rows, columns, shift, x) if any(shift) else None)
        x = x.reshape(batch, rows, columns, tall, wide, x.shape[-1]).transpose(2, 3).flatten(3, 4).flatten(1, 2)
        if any(shift):
            x = torch.roll(x, (shift[0], shift[1]), (1, 2))
        return x[:, :height, :width].contiguous()

    def _attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        windows, places, _ = x.shape
        parts = self.qkv(x).reshape(windows, places, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        scores = (query * self.head_dim**-0.5) @ key.transpose(-1, -2) + _bias(self)
        if mask is not None:
            scores = scores.view(-1, mask.shape[0], self.num_heads, places, places) + mask[None, :, None]
            scores = scores.view(windows, self.num_heads, places, places)
        scores = functional.dropout(scores.softmax(-1), self.attention_dropout, self.training)
        x = self.proj((scores @ value).transpose(1, 2).flatten(2))
        return functional.dropout(x, self.dropout, self.training)

    def _mask(self, rows: int, columns: int, shift: list[int], x: Tensor) -> Tensor:
        """Keeps places apart that are neighbours only because of the shift: one mask per window."""
        sizes, zones = self.window_size, []
        for num, size, by in zip((rows, columns), sizes, shift, strict=True):
            place = torch.arange(num * size, device=x.device)
            zone = (place >= (num - 1) * size).long() + (place >= num * size - by).long()
            zones.append(zone if by else torch.zeros_like(zone))
        zone = (zones[0][:, None] * 3 + zones[1]).view(rows, sizes[0], columns, sizes[1]).transpose(1, 2).flatten(2)
        zone = zone.flatten(0, 1)
        return torch.where(zone[:, None] == zone[:, :, None], 0.0, -100.0).to(x.dtype)


class MaxVitHeads(nn.Module):
    """torchvision's `RelativePositionalMultiHeadAttention` whose heads may vary."""

    n_heads: int
    head_dim: int
    scale_factor: float
    to_qkv: nn.Linear
    merge: nn.Linear
    relative_position_bias_table: Tensor
    relative_position_index: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Attends inside groups of places.

        Args:
            x: Features as (batch, groups, places, channels).

        Returns:
            A tensor of the same shape.
        """
        parts = self.to_qkv(x).chunk(3, -1)
        heads = [part.reshape(*x.shape[:3], self.n_heads, self.head_dim).transpose(2, 3) for part in parts]
        query, key, value = heads
        scores = query @ (key * self.scale_factor).transpose(-1, -2) + _bias(self)
        merged: Tensor = self.merge((scores.softmax(-1) @ value).transpose(2, 3).flatten(3))
        return merged


def _bias(attention: SwinHeads | MaxVitHeads) -> Tensor:
    """Looks up the bias of every pair of places, as (1, heads, places, places)."""
    index = attention.relative_position_index.view(-1)
    places = round(index.numel() ** 0.5)
    return attention.relative_position_bias_table[index].view(places, places, -1).permute(2, 0, 1).unsqueeze(0)
