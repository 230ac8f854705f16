"""`free_heads`: a copy of a model whose attention does not derive the size of its heads from the width of its input."""

from typing import Any

from torch import nn

from cafenet.errors import CafeNetError
from cafenet.modules.copying import copy_of
from cafenet.modules.head_attention import HeadAttention
from cafenet.modules.unwrapping import unwrap
from cafenet.modules.window_attention import MaxVitHeads, SwinHeads


def free_heads(model: nn.Module) -> nn.Module:
    """Copies a model, and replaces attention whose forward ties its heads to the width of its input.

    These are `nn.MultiheadAttention` and the window attentions of torchvision's Swin and MaxViT. The replacements have
    the same parameters under the same names and compute the same, but PyTorch's fused layer kernel is not used. A slim
    model that was cut from the copy is loaded with such a copy: `cafenet.load(path, cafenet.free_heads(build()))`.

    Args:
        model: Any model, which is not changed.

    Returns:
        The copy. Its modules are those of the model if none needs a replacement.

    Raises:
        CafeNetError: If `model` is not a module.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> import cafenet
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> model = cafenet.free_heads(nn.Sequential(nn.Linear(6, 8), layer, nn.Linear(8, 3)))
        >>> [(group.name, group.channels) for group in cafenet.trace(model, torch.zeros(1, 5, 6)).groups]
        [('0', 8), ('1.self_attn.in_proj_weight', 24), ('1.linear1', 16)]
    """
    if not isinstance(model, nn.Module):
        raise CafeNetError(f"free_heads takes a model (nn.Module), but got {type(model).__name__}")
    copy = copy_of(unwrap(model))
    freed = {module: _freed(module) for module in list(copy.modules())}
    for module in list(copy.modules()):
        for name, child in module._modules.items():
            if child is not None:
                module._modules[name] = freed[child]
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False  # PyTorch's fused layer is the only one that reads nested tensors
    return freed[copy]


def _freed(module: nn.Module) -> nn.Module:
    kind: type = type(module)
    if kind is nn.MultiheadAttention and getattr(module, "bias_k", None) is None and not module.add_zero_attn:
        # PyTorch's fused encoder layer, which would not call our forward, is not used without this mark.
        return _as_kind(HeadAttention, module, _qkv_same_embed_dim=False)
    if kind.__module__ == "torchvision.models.swin_transformer" and kind.__name__ == "ShiftedWindowAttention":
        return _as_kind(SwinHeads, module, head_dim=module.qkv.out_features // 3 // module.num_heads)  # type: ignore
    if kind.__module__ == "torchvision.models.maxvit" and kind.__name__ == "RelativePositionalMultiHeadAttention":
        return _as_kind(MaxVitHeads, module)
    return module


def _as_kind(kind: type[nn.Module], module: nn.Module, **attributes: Any) -> nn.Module:
    """Makes a module of another kind that holds everything that this one holds."""
    made = kind.__new__(kind)
    vars(made).update(vars(module), **attributes)
    return made
