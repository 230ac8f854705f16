"""Images in files: decoded when they are needed, or all at once if they fit into memory."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cafenet.common.extras import install
from cafenet.common.limits import IMAGE_PIXELS
from cafenet.data.datasets import ImageData
from cafenet.errors import DataError

CACHE_LIMIT_BYTES = 2 * 2**30
"""Largest size of decoded images that are kept in memory: 14,000 of 224x224."""


@dataclass(frozen=True)
class ImageFiles(Sequence[Tensor]):
    """Image files that are decoded when indexed, to RGB as uint8 (3, H, W)."""

    paths: tuple[str, ...]
    """Paths of the files."""
    size: tuple[int, int] | None = None
    """Height and width that every image is brought to (scaled to cover them, then cropped); None keeps its own size."""

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> "ImageFiles": ...
    def __getitem__(self, index: int | slice) -> "Tensor | ImageFiles":
        if isinstance(index, slice):
            return self.take(range(*index.indices(len(self))))
        image = read_image(self.paths[index])
        return image if self.size is None else cover(image, self.size)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[number] for number in range(len(self)))

    def take(self, indices: Sequence[int]) -> "ImageFiles":
        """Return some of the files.

        Args:
            indices: Numbers of the files.

        Returns:
            The files, not decoded.
        """
        return replace(self, paths=tuple(self.paths[number] for number in indices))


def image_files(paths: Sequence[str], size: tuple[int, int] | None = None) -> ImageFiles:
    """Check that files exist and are not empty; their content is checked when they are decoded.

    Args:
        paths: Paths of the files.
        size: Height and width that every image is brought to, or None.

    Returns:
        The images.

    Raises:
        DataError: If a file is missing or empty.
    """
    problems = [problem for problem in map(_file_problem, paths) if problem]
    if problems:
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise DataError("image files must exist and not be empty, but " + "; ".join(problems[:5]) + more)
    return ImageFiles(tuple(paths), size)


def read_image(path: str | Path) -> Tensor:
    """Decode one file to RGB.

    Args:
        path: The file.

    Returns:
        A uint8 tensor (3, H, W).

    Raises:
        DataError: If the file cannot be decoded; the message names it.
    """
    library = _pillow()
    try:
        with _opened(library, path) as image:
            pixels = np.array(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, library.DecompressionBombError) as error:
        raise _unreadable(path, error) from error
    return torch.from_numpy(pixels).permute(2, 0, 1)


def cover(image: Tensor, size: tuple[int, int], crop_ratio: float = 1.0) -> Tensor:
    """Scale an image, with its proportions kept, until it covers `size / crop_ratio`, then cut `size` from the middle.

    An image of 300x400 (height, width) for size (224, 224) and crop_ratio 0.875 is scaled to 256x341, then cropped.

    Args:
        image: Image, shape (C, H, W).
        size: Height and width of the result.
        crop_ratio: Share of each side of the scaled image that is kept.

    Returns:
        The cropped image.
    """
    height, width = image.shape[-2:]
    scale = max(size[0] / crop_ratio / height, size[1] / crop_ratio / width)
    scaled = (max(size[0], round(height * scale)), max(size[1], round(width * scale)))
    if scaled != (height, width):
        image = functional.interpolate(image[None], scaled, mode="bilinear", antialias=True)[0]
    top, left = (scaled[0] - size[0]) // 2, (scaled[1] - size[1]) // 2
    return image[:, top : top + size[0], left : left + size[1]]


def in_memory(data: ImageData, limit_bytes: int = CACHE_LIMIT_BYTES) -> ImageData:
    """Decode all image files of a data set, if they fit into the limit.

    The limit does not change the images, only when they are decoded: damaged files are found here, or later in
    training.

    Args:
        data: The data set.
        limit_bytes: Largest size of the decoded images.

    Returns:
        The data with images in memory, or the data unchanged.

    Raises:
        DataError: If a file cannot be decoded.
    """
    files = data.images
    if not isinstance(files, ImageFiles):
        return data
    sizes = _sizes(files, limit_bytes)
    if sizes is None:
        return data
    images: Tensor | list[Tensor]
    if len(set(sizes)) == 1:
        images = torch.empty(len(files), 3, *sizes[0], dtype=torch.uint8)
    else:
        images = [torch.empty(3, *size, dtype=torch.uint8) for size in sizes]

    def decode(number: int) -> None:
        images[number].copy_(files[number])

    with ThreadPoolExecutor(num_cores()) as pool:  # Pillow decodes without holding the interpreter's lock
        list(pool.map(decode, range(len(files))))
    return replace(data, images=images if isinstance(images, Tensor) else tuple(images))


def num_cores() -> int:
    """Return the number of cores that this process may use.

    Returns:
        The number.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _sizes(files: ImageFiles, limit_bytes: int) -> list[tuple[int, int]] | None:
    """Return height and width of every image, or None if they do not fit; only headers are read, and only if it may
    help."""
    if files.size is not None:
        return [files.size] * len(files) if 3 * files.size[0] * files.size[1] * len(files) <= limit_bytes else None
    if sum(os.path.getsize(path) for path in files.paths) > limit_bytes:
        return None  # decoded images are larger than their files
    sizes = [_header_size(path) for path in files.paths]
    return sizes if sum(3 * height * width for height, width in sizes) <= limit_bytes else None


def _header_size(path: str) -> tuple[int, int]:
    """Return height and width of an image from its header."""
    library = _pillow()
    try:
        with _opened(library, path) as image:
            return image.height, image.width
    except (OSError, SyntaxError, ValueError, library.DecompressionBombError) as error:
        raise _unreadable(path, error) from error


def _opened(library: Any, path: str | Path) -> Any:
    """Open an image, read its header and check its size against our limit in place of Pillow's."""
    most = IMAGE_PIXELS.value(DataError)
    if library.MAX_IMAGE_PIXELS is not None and most > library.MAX_IMAGE_PIXELS:
        library.MAX_IMAGE_PIXELS = most
    image = library.open(path)
    IMAGE_PIXELS.check(image.width * image.height, f"the pixels of the image {path}", DataError)
    return image


def _file_problem(path: str) -> str | None:
    """Return what is wrong with a file, or None."""
    try:
        return None if os.path.getsize(path) else f"{path} is empty"
    except OSError:
        return f"there is no {path}"


def _unreadable(path: str | Path, error: Exception) -> DataError:
    """Return the error for an image that cannot be decoded."""
    return DataError(f"an image must be readable, but {path} is not ({error}); replace the file or remove it")


def _pillow() -> Any:
    """Import Pillow, or explain how to install it."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise DataError(f"reading images needs Pillow, which is not installed; {install('vision')}") from error
    return Image
