"""The cache of kernels that oneDNN compiles for a CPU, enlarged for the many shapes of a supernet.

oneDNN compiles a convolution for every shape that it meets and keeps the last 1,024. A supernet meets thousands of
shapes, because every layer's widths vary on both sides, and would compile the same ones again and again (`make
bench-kernels` measures the cost). A kernel takes about 25 KB, so a full cache takes 400 MB at most.
"""

import os

_VARIABLE, _EARLIER_NAME = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"
NUM_KEPT = 16_384


def keep_kernels() -> None:
    """Lets oneDNN keep enough kernels, unless the user has set the number. oneDNN reads it at its first operation."""
    if _EARLIER_NAME not in os.environ:
        os.environ.setdefault(_VARIABLE, str(NUM_KEPT))
