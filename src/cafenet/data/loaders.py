"""Loaders for training and for scoring; both are plain DataLoaders, and `train_supernet` accepts them as data.

Images in memory are fetched, augmented and normalised one batch at a time, which takes so little time that no worker is
needed. Images in files, and random resized crops, are prepared one by one in as many workers as there are cores.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from cafenet.common.interrupts import worker_start
from cafenet.common.torchvision_compat import import_torchvision
from cafenet.data.augment import NONE, NUM_DRAWS, Augmentation, augment, erase, normalise
from cafenet.data.datasets import ImageData
from cafenet.data.image_files import ImageFiles, cover, num_cores
from cafenet.errors import DataError

_CROP_RATIO = 0.875  # ImageNet's 224 of 256
_Example = tuple[int, Tensor | None, Tensor | None]


def scaling_note(data: ImageData, size: Sequence[int] | None, remedy: str) -> str:
    """Say that images are enlarged for a model, which makes everything slower.

    Args:
        data: The images.
        size: Height and width of the inputs; None leaves the images as they are.
        remedy: Text that tells the user how to keep the images as they are, with `{size}` for their size.

    Returns:
        One sentence, or an empty text if the images are not enlarged.

    Example:
        >>> from cafenet.data import fashion_mnist
        >>> from cafenet.data.loaders import scaling_note
        >>> scaling_note(fashion_mnist().train, (56, 56), "--image-size {size} leaves them")
        'Images of 28x28 are scaled to 56x56, which is 4 times the work; --image-size 28,28 leaves them.'
    """
    own = tuple(data.images[0].shape[-2:])
    if size is None or len(size) != 2 or math.prod(size) <= math.prod(own):
        return ""
    times = math.prod(size) / math.prod(own)
    words = [f"{height}x{width}" for height, width in (own, size)]
    keep = remedy.format(size=",".join(map(str, own)))
    return f"Images of {words[0]} are scaled to {words[1]}, which is {times:.0f} times the work; {keep}."


def train_loader(
    data: ImageData,
    batch_size: int,
    augmentation: Augmentation = NONE,
    *,
    size: tuple[int, int] | None = None,
    num_workers: int | None = None,
) -> DataLoader[Any]:
    """Make a loader of shuffled batches (inputs, targets) of augmented, normalised images.

    Args:
        data: The training set.
        batch_size: Number of images in a batch.
        augmentation: Random changes of the images.
        size: Height and width of the inputs; required for resized crops and for images of various sizes.
        num_workers: Number of worker processes, by default 0 if whole batches are made at once and otherwise one per
            core.

    Returns:
        The loader.

    Raises:
        DataError: If the batch size, the size or the padding cannot be used.

    Example:
        >>> from cafenet.data import Augmentation, fashion_mnist, train_loader
        >>> inputs, targets = next(iter(train_loader(fashion_mnist().train, 32, Augmentation(flip=True))))
        >>> list(inputs.shape)
        [32, 1, 28, 28]
    """
    return _loader(data, batch_size, _View(data, augmentation, size), num_workers, shuffle=True)


def eval_loader(
    data: ImageData, batch_size: int = 256, *, size: tuple[int, int] | None = None, num_workers: int | None = None
) -> DataLoader[Any]:
    """Make a loader of batches (inputs, targets) of all images, normalised and in order.

    Args:
        data: The data set.
        batch_size: Number of images in a batch.
        size: Height and width of the inputs. Images of another size are scaled to cover 1/0.875 times this size and
            cropped in the middle.
        num_workers: Number of worker processes, by default 0 if whole batches are made at once and otherwise one per
            core.

    Returns:
        The loader.

    Raises:
        DataError: If the batch size or the size cannot be used.

    Example:
        >>> from cafenet.data import eval_loader, fashion_mnist
        >>> len(eval_loader(fashion_mnist().test, 500))
        4
    """
    return _loader(data, batch_size, _View(data, NONE, size), num_workers, shuffle=False)


def _loader(
    data: ImageData, batch_size: int, view: "_View", num_workers: int | None, *, shuffle: bool
) -> DataLoader[Any]:
    """Make the loader of a view."""
    if batch_size < 1:
        raise DataError(f"batch_size must be 1 or more, but is {batch_size}")
    if num_workers is None:
        num_workers = 0 if view.is_whole else num_cores()
    examples = _DrawnExamples(view) if view.is_whole else _Examples(view)
    return DataLoader(
        examples,
        batch_size=batch_size,
        shuffle=shuffle,
        num_workers=num_workers,
        collate_fn=view.batch,
        worker_init_fn=worker_start(),
    )


@dataclass(frozen=True)
class _View:
    """Options that decide how images become inputs of a network."""

    data: ImageData
    augmentation: Augmentation
    size: tuple[int, int] | None

    def __post_init__(self) -> None:
        images = self.data.images
        fixed = isinstance(images, Tensor) or (isinstance(images, ImageFiles) and images.size is not None)
        if self.size is None and (self.augmentation.resized_crop or not fixed):
            raise DataError(
                f"{self.data.name} must be given a size for its inputs, since its images, or the crops of them, have "
                "various sizes; pass size=(224, 224)"
            )
        shortest = min(self.size or (images.shape[2:] if isinstance(images, Tensor) else images.size))  # type: ignore
        if self.augmentation.padding > shortest:
            raise DataError(
                f"padding must be at most the shorter side of the images, {shortest}, or crops of it are black, but is "
                f"{self.augmentation.padding}; see data.augmentation.padding"
            )

    @property
    def is_whole(self) -> bool:
        """True if a batch is made from one tensor of images at once."""
        images = self.data.images
        fits = isinstance(images, Tensor) and self.size in (None, tuple(images.shape[2:]))
        return fits and not self.augmentation.resized_crop

    def example(self, index: int) -> _Example:
        """Return the part of the work that is done per image, and the image's random numbers."""
        image = None if self.is_whole else self._sized(self.data.images[index])
        return index, image, torch.rand(NUM_DRAWS) if self.augmentation.draws else None

    def examples(self, indices: Sequence[int], draws: Tensor) -> list[_Example]:
        """Return many examples with the given random numbers; all other work is done per batch."""
        return [(index, None, row) for index, row in zip(indices, draws.unbind(), strict=True)]

    def batch(self, examples: list[_Example]) -> tuple[Tensor, Tensor]:
        """Do the part of the work that is done per batch."""
        indices, singles, draws = zip(*examples, strict=True)
        index = torch.tensor(indices)
        whole = self.data.images
        images = whole[index] if isinstance(whole, Tensor) and self.is_whole else torch.stack(singles)
        if not self.augmentation.draws:
            return normalise(images, self.data.mean, self.data.std), self.data.targets[index]
        chance = torch.stack(draws)
        images = normalise(augment(images, chance, self.augmentation), self.data.mean, self.data.std)
        if self.augmentation.erasing:
            images = erase(images, chance, self.augmentation.erasing)
        return images, self.data.targets[index]

    def _sized(self, image: Tensor) -> Tensor:
        """Bring an image to the size of the inputs."""
        if self.augmentation.resized_crop:
            resized: Tensor = _resized_crop(self.size)(image)
            return resized
        if self.size is None or image.shape[1:] == self.size:
            return image
        return cover(image, self.size, _CROP_RATIO)


@functools.cache
def _resized_crop(size: tuple[int, int]) -> Any:
    """Return torchvision's random resized crop."""
    import_torchvision()
    return import_module("torchvision.transforms.v2").RandomResizedCrop(size, antialias=True)


class _Examples(Dataset[_Example]):
    """The examples of a view, one by one."""

    def __init__(self, view: _View) -> None:
        self._view = view

    def __len__(self) -> int:
        return len(self._view.data)

    def __getitem__(self, index: int) -> _Example:
        return self._view.example(index)


class _DrawnExamples(_Examples):
    """Examples that are prepared only per batch; `cafenet.training.batch_feed` draws their random numbers at once."""

    num_draws = NUM_DRAWS

    def take(self, indices: Sequence[int], draws: Tensor) -> list[_Example]:
        """Return these examples with these random numbers."""
        return self._view.examples(indices, draws)
