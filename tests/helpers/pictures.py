"""What the tests of data share: noise images, data sets of them, and files on disk."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from cafenet.data import ImageData


def pixels(num_images: int = 12, size: tuple[int, int] = (8, 6), channels: int = 3, seed: int = 0) -> torch.Tensor:
    """Noise as uint8 (N, C, H, W)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (num_images, channels, *size), generator=generator, dtype=torch.uint8)


def small_data(num_images: int = 12, num_classes: int = 3, **options) -> ImageData:
    """Noise images whose class is their number modulo the number of classes."""
    images = pixels(num_images, **options)
    channels = images.shape[1]
    targets = torch.arange(num_images) % num_classes
    names = tuple("abcdefgh"[:num_classes])
    return ImageData("noise", images, targets, names, (0.5,) * channels, (0.25,) * channels)


def write_image(path: Path, size: tuple[int, int] = (8, 6), seed: int = 0) -> Path:
    """A noise image as a PNG of that height and width."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(256, size=(*size, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    return path
