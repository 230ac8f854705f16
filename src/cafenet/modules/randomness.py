"""The global random numbers of PyTorch, NumPy and Python, seeded inside a block and restored after it."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def kept_randomness() -> Iterator[None]:
    """Restores the states of all global random numbers on exit, whatever was drawn or seeded inside the block."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)


@contextmanager
def fixed_randomness(seed: int) -> Iterator[Callable[[], bool]]:
    """Seeds all global random numbers inside the block, and restores their states on exit.

    Args:
        seed: Seed of all generators.

    Yields:
        A function that returns whether numbers of Python or NumPy were drawn inside the block.
    """
    with kept_randomness():
        random.seed(seed)
        np.random.seed(seed)
        seed_torch(seed)
        start = _drawn_state()
        yield lambda: _drawn_state() != start


def seed_torch(seed: int) -> None:
    """Seeds the generators of PyTorch that exist. `torch.manual_seed` would also queue a call for an unused GPU.

    Args:
        seed: Seed of the generators.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def _drawn_state() -> tuple[Any, ...]:
    numpy = np.random.get_state(legacy=False)["state"]
    return random.getstate(), numpy["key"].tobytes(), numpy["pos"]


@contextmanager
def same_randomness(device: torch.device) -> Iterator[Callable[[], None]]:
    """Restore PyTorch's random states on exit, and on demand.

    Args:
        device: Device whose random state is restored beside that of the CPU.

    Yields:
        A function that rewinds the random states to those on entry.
    """
    cpu = torch.get_rng_state()
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def rewind() -> None:
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda, device)

    try:
        yield rewind
    finally:
        rewind()
