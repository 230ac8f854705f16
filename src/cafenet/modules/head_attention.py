"""`nn.MultiheadAttention` with a number of heads that does not depend on the width of its input.

PyTorch's own forward computes the size of a head as `embed_dim // num_heads`, so it can lose neither heads nor features
of its input alone. This forward reads `num_heads` and `head_dim` as they are stored: with 768 features in 12 heads of
64, it also runs with 5 heads of 64 on 300 features.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class HeadAttention(nn.MultiheadAttention):
    """An `nn.MultiheadAttention` whose heads may vary. `cafenet.free_heads` makes it from an existing one.

    The parameters and attributes are those of `nn.MultiheadAttention`, and so are its results.
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Computes attention as `nn.MultiheadAttention` does.

        Args:
            query: Queries, as for `nn.MultiheadAttention`.
            key: Keys.
            value: Values.
            key_padding_mask: Mask of the keys that are padding.
            need_weights: Whether to return the attention weights.
            attn_mask: Mask of pairs of queries and keys.
            average_attn_weights: Whether the weights are averaged over all heads.
            is_causal: Hint that `attn_mask` is causal. The mask itself is used.

        Returns:
            The output, and the attention weights or None.
        """
        is_batched = query.dim() == 3
        if not is_batched:
            tensors = [each.unsqueeze(0) for each in (query, key, value)]
        elif self.batch_first:
            tensors = [query, key, value]
        else:
            tensors = [each.transpose(0, 1) for each in (query, key, value)]
        parts = self._projected(tensors, is_self=query is key and key is value)
        heads = [each.reshape(*each.shape[:2], self.num_heads, self.head_dim).transpose(1, 2) for each in parts]
        mask = self._mask(heads[0], key_padding_mask, attn_mask)
        mixed, weights = self._attend(heads, mask, need_weights)
        out = self.out_proj(mixed.transpose(1, 2).flatten(2))
        out = out.view(*out.shape[:2], self.embed_dim)  # `embed_dim` follows the width of the stream
        if weights is not None:
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights if is_batched else weights.squeeze(0)
        if not is_batched:
            return out.squeeze(0), weights
        return (out if self.batch_first else out.transpose(0, 1)), weights

    def _projected(self, tensors: list[Tensor], is_self: bool) -> list[Tensor]:
        packed, bias = self._parameters["in_proj_weight"], self._parameters["in_proj_bias"]
        if packed is not None and is_self:
            return list(functional.linear(tensors[0], packed, bias).chunk(3, -1))
        separate = [self._parameters[f"{name}_proj_weight"] for name in "qkv"]
        weights = separate if packed is None else packed.chunk(3)
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        return [functional.linear(x, w, b) for x, w, b in zip(tensors, weights, biases, strict=True)]  # type: ignore[arg-type]

    def _mask(self, query: Tensor, padding: Tensor | None, pairs: Tensor | None) -> Tensor | None:
        """Joins both masks as numbers that are added to the scores."""
        mask = None
        if pairs is not None:
            mask = _added(pairs, query)
            mask = mask.view(query.shape[0], -1, *mask.shape[1:]) if mask.dim() == 3 else mask
        if padding is not None:
            padding = padding if padding.dim() == 2 else padding.unsqueeze(0)
            keys = _added(padding, query)[:, None, None]
            mask = keys if mask is None else mask + keys
        return mask

    def _attend(self, heads: list[Tensor], mask: Tensor | None, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        query, key, value = heads
        dropout = self.dropout if self.training else 0.0
        if not need_weights:
            return functional.scaled_dot_product_attention(query, key, value, mask, dropout), None
        scores = (query * self.head_dim**-0.5) @ key.transpose(-1, -2)
        weights = functional.dropout((scores if mask is None else scores + mask).softmax(-1), dropout)
        return weights @ value, weights


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, float("-inf"))
    return mask.to(like.dtype)
