"""Images and boxes for the training of a detector: scaled once, kept in memory if they fit, mirrored at random."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from cafenet.common.interrupts import worker_start
from cafenet.data.image_files import CACHE_LIMIT_BYTES, num_cores, read_image
from cafenet.detection.dataset import CocoData, Picture
from cafenet.detection.detectors import Target


@dataclass(frozen=True)
class Scaling:
    """Size of the images: 640x480 with a shorter side of 240 and a longer one of at most 320 becomes 320x240."""

    min_size: int
    """Length of the shorter side in pixels."""
    max_size: int
    """Largest length of the longer side in pixels."""

    def of(self, picture: Picture) -> tuple[int, int]:
        """Return the size of an image after scaling.

        Args:
            picture: The image.

        Returns:
            Height and width.
        """
        short, long = sorted((picture.width, picture.height))
        factor = min(self.min_size / short, self.max_size / long)
        return max(1, round(picture.height * factor)), max(1, round(picture.width * factor))


class Pictures(Dataset[tuple[Tensor, Target]]):
    """Images between 0 and 1 with boxes and labels, both scaled; boxes over crowds are left out."""

    def __init__(
        self, data: CocoData, scaling: Scaling, *, flip: bool = False, cache_limit_bytes: int = CACHE_LIMIT_BYTES
    ) -> None:
        """Decode the images if they fit into memory.

        Args:
            data: The data set.
            scaling: Size of the images.
            flip: If True, an image is mirrored left to right with probability 1/2.
            cache_limit_bytes: Largest size of decoded images that are kept in memory.
        """
        self.data, self.scaling, self._flip = data, scaling, flip
        sizes = [scaling.of(picture) for picture in data.pictures]
        self._kept: list[Tensor] | None = None
        if sum(3 * height * width for height, width in sizes) <= cache_limit_bytes:
            with ThreadPoolExecutor(num_cores()) as pool:
                self._kept = list(pool.map(self._decode, range(len(data))))

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Target]:
        picture = self.data.pictures[index]
        image = (self._decode(index) if self._kept is None else self._kept[index]).float() / 255
        wanted = [box for box in picture.boxes if not box.is_crowd]
        boxes = torch.tensor([box.corners for box in wanted], dtype=torch.float32).reshape(-1, 4)
        boxes = boxes * self.factors(index).flip(0).repeat(2)
        if self._flip and torch.rand(()) < 0.5:
            image = image.flip(2)
            boxes = torch.stack(
                [image.shape[2] - boxes[:, 2], boxes[:, 1], image.shape[2] - boxes[:, 0], boxes[:, 3]], dim=1
            )
        labels = torch.tensor([box.label for box in wanted], dtype=torch.int64)
        return image, {"boxes": boxes, "labels": labels}

    def factors(self, index: int) -> Tensor:
        """Return the factors by which an image was scaled.

        Args:
            index: Number of the image.

        Returns:
            The factors of height and width.
        """
        picture = self.data.pictures[index]
        height, width = self.scaling.of(picture)
        return torch.tensor([height / picture.height, width / picture.width])

    def _decode(self, index: int) -> Tensor:
        """Decode and scale one image."""
        picture = self.data.pictures[index]
        image = read_image(picture.path)
        size = self.scaling.of(picture)
        if tuple(image.shape[1:]) == size:
            return image
        return functional.interpolate(image[None], size, mode="bilinear", antialias=True)[0]


def loader(pictures: Pictures, batch_size: int, num_workers: int = 0) -> DataLoader[Any]:
    """Make a loader whose batches are lists, because images differ in size.

    Args:
        pictures: The images.
        batch_size: Number of images in a batch.
        num_workers: Number of processes that prepare images.

    Returns:
        The loader.
    """
    return DataLoader(
        pictures,
        batch_size=batch_size,
        num_workers=num_workers,
        collate_fn=as_lists,
        worker_init_fn=worker_start(),
    )


def as_lists(examples: list[tuple[Tensor, Target]]) -> tuple[list[Tensor], list[Target]]:
    """Turn a list of pairs into a pair of lists.

    Args:
        examples: Pairs of an image and its target.

    Returns:
        The images and the targets.
    """
    images, targets = zip(*examples, strict=True)
    return list(images), list(targets)
