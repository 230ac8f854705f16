"""Memory that a training on a CPU gives back and asks for again: kept by the process instead.

glibc takes every large tensor from the kernel and gives it back when it is freed, so that a training of 224x224 images
makes the kernel clear the same gigabytes in every step; plain PyTorch does the same. `python -m benchmarks.memory`
measures what that costs. The memory that is kept makes the peak about a quarter higher, and stays with the process.
"""

import ctypes
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")
MOST_FREE_BYTES = 2**31 - 1
"""Free memory at the end of the heap above which it is given back; mallopt takes an int."""
LARGEST_KEPT_BYTES = 2**30
"""A larger tensor is still taken from the kernel."""


def keep_memory() -> bool:
    """Let glibc keep freed memory, unless the user has said how, and return whether it will.

    Nothing happens on systems without glibc.
    """
    if not _is_glibc() or _is_set_by_user():
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, MOST_FREE_BYTES))


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):  # Windows, macOS, musl
        return False


def _is_set_by_user() -> bool:
    return any(name in os.environ for name in _VARIABLES) or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "")
