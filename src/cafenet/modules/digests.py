"""Short digests of models, by which files recognise what they belong to."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def digest_of_model(model: nn.Module) -> str:
    """Return a short digest of a model's weights and buffers.

    Args:
        model: The model.

    Returns:
        16 hexadecimal digits.
    """
    return digest_of_tensors(model.state_dict())


def digest_of_parameters(model: nn.Module) -> str:
    """Return a short digest of a model's weights alone: statistics, which are measured, may differ in the last digits.

    Args:
        model: The model.

    Returns:
        16 hexadecimal digits.
    """
    return digest_of_tensors(dict(model.named_parameters()))


def digest_of_tensors(tensors: Mapping[str, Any]) -> str:
    """Return a short digest of named tensors.

    Args:
        tensors: The tensors; other values are left out.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(tensors.items()):
        if isinstance(tensor, Tensor):  # a module's extra state may be anything
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(bytes_of(tensor))
    return digest.hexdigest()


def bytes_of(tensor: Tensor) -> bytes:
    """Return the bytes of a tensor's values.

    Args:
        tensor: The tensor, on any device.

    Returns:
        The bytes in the order of the values.
    """
    content: bytes = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return content
