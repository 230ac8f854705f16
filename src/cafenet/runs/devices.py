"""Devices by name."""

import torch

from cafenet.errors import RecipeError
from cafenet.training.process_group import processes


def find_device(name: str) -> torch.device:
    """Return a device by name after checking that tensors can be put on it.

    Args:
        name: auto, cpu, cuda or cuda:1. Under torchrun, `cuda` is the GPU of each process.

    Returns:
        The device.

    Raises:
        RecipeError: If pyTorch cannot use the device.
    """
    processes()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    try:
        if torch.empty(1, device=name).device.type == "meta":
            raise RuntimeError("meta tensors hold no values")
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise RecipeError(
            f"device must be auto, cpu or one that PyTorch can use here, but {name!r} is not: {reason}"
        ) from error
    return torch.device(name)
