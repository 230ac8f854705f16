"""A few numbers by which a checkpoint recognises the data that its training began with.

A sample of the examples is read, and every large array in it becomes its root mean square and one projection, so that
decoders and machines that differ in the last digits agree. Labels and other small values must be equal.
"""

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader

from cafenet.common.interrupts import worker_start

NUM_EXAMPLES = 16
_FEW_VALUES = 16
"""Largest number of values that must be equal."""
_TOLERANCE = 0.01


def sketch_of(batches: Any, num_examples: int, num_workers: int) -> list[float] | None:
    """Sketch a fixed sample of examples. They are read twice, since a user's data may differ from read to read.

    Args:
        batches: Data set whose entry for a list of numbers is a list of these examples.
        num_examples: Number of examples that there are.
        num_workers: Number of processes that load data; one of them reads if there are any.

    Returns:
        The numbers, or None if the examples cannot be read, or differ from read to read.
    """
    size = min(NUM_EXAMPLES, num_examples)
    indices = sorted(np.random.default_rng(0).permutation(num_examples)[:size].tolist())
    loader: DataLoader[Any] = DataLoader(
        batches,
        batch_size=None,
        sampler=[indices, indices],
        num_workers=min(num_workers, 1),
        worker_init_fn=worker_start(),
        generator=torch.Generator(),  # else it would draw from the global one
    )
    try:
        first, second = ([value for example in read for value in _values(example)] for read in loader)
    except Exception:  # the training reads the same data, and reports the user's error with its place
        return None
    return first if is_same(first, second) else None


def is_same(before: list[float] | None, now: list[float] | None) -> bool:
    """Return whether two sketches may be of the same data.

    Args:
        before: The sketch of a checkpoint, or None if it has none.
        now: The sketch of the data at hand, or None if they have none.

    Returns:
        False if both are known and differ.
    """
    if before is None or now is None:
        return True
    return len(before) == len(now) and bool(np.allclose(before, now, rtol=_TOLERANCE, atol=_TOLERANCE))


def _values(example: Any) -> Iterator[float]:
    """Yield one or two numbers for every part of an example."""
    for leaf in tree_leaves(example):
        if isinstance(leaf, (str, bytes)):
            yield _share(leaf.encode() if isinstance(leaf, str) else leaf)
            continue
        array = leaf.detach().cpu().float().numpy() if isinstance(leaf, Tensor) else np.asarray(leaf)
        if array.dtype.kind not in "biuf" or not array.size:
            continue
        values = np.nan_to_num(array.astype(np.float64).ravel())
        yield from (_share(values.tobytes()),) if values.size <= _FEW_VALUES else _measures(values)


def _share(content: bytes) -> float:
    """Return a number from 0 to 100 that depends on every bit."""
    return 100 * zlib.crc32(content) / 2**32


def _measures(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the root mean square of values and their projection on a wave, both as numbers of about 1 to 100."""
    size = float(np.sqrt(np.mean(values**2)))
    wave = np.cos(0.7 * np.arange(values.size) + 1)
    return float(np.log(size + 1e-12)), float(values @ wave) / (size * values.size**0.5 + 1e-12)
