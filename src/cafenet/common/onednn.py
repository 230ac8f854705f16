"""Kernels that oneDNN compiles for a CPU: kept for all the shapes that a supernet runs through.

oneDNN compiles a convolution for every shape that it meets and keeps the last 1,024. A supernet meets thousands, since
every layer's widths vary on both sides, and then compiles the same ones again and again (`make bench-kernels` measures
what that costs). A kernel takes some 25 KB, so all that are kept take 400 MB at the most.
"""

import os

_VARIABLE, _EARLIER_NAME = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"
NUM_KEPT = 16_384


def keep_kernels() -> None:
    """Let oneDNN keep enough kernels, unless the user has said how many; it reads this at its first operation."""
    if _EARLIER_NAME not in os.environ:
        os.environ.setdefault(_VARIABLE, str(NUM_KEPT))
