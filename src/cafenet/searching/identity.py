"""The identity of a trained supernet: plain values that tell it from others."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from cafenet.space.importance import constants
from cafenet.supernet.supernet import Supernet


def supernet_identity(supernet: Supernet) -> dict[str, object]:
    """Return plain values that tell one trained supernet from another.

    Args:
        supernet: The supernet.

    Returns:
        Its bins, its way to share weights and a digest of its weights, by name.
    """
    return {
        "bins": {group.name: [group.channels, group.first, group.size] for group in supernet.binned.bins.groups},
        "sharing": repr(supernet.sharing),
        "weights": _digest({**supernet.model.state_dict(), **constants(supernet.space, supernet.model)}),
    }


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """Return a short digest of named tensors."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
