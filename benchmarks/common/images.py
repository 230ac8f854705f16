"""Images of the benchmarks at another resolution."""

from dataclasses import replace

from torch import Tensor
from torch.nn.functional import avg_pool2d

from cafenet.data import ImageData


def shrunk(data: ImageData, size: int) -> ImageData:
    """Return square images averaged down to `size` pixels a side; images of that size stay as they are."""
    assert isinstance(data.images, Tensor)
    if data.images.shape[-1] == size:
        return data
    return replace(data, images=avg_pool2d(data.images.float(), data.images.shape[-1] // size).round().byte())
