"""Random changes of training images, for a whole batch at once.

Random numbers are drawn separately from the work: every example comes with eight numbers between 0 and 1, and the
changes of its image are a function of these. `cafenet.training.batch_feed` seeds the draw with seed, epoch and example.
A resumed run therefore continues bit for bit, whatever batch an example falls into and whichever process prepares it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from cafenet.common.options import Count, Share, check_options
from cafenet.errors import DataError

NUM_DRAWS = 8  # row and column of the crop, flip, erase or not, its area, its proportions, its row and column

_ERASED_AREA = (0.02, 0.33)
_ERASED_RATIO = (0.3, 3.3)


@dataclass(frozen=True)
class Augmentation:
    """Random changes that may be made to a training image.

    Example:
        >>> from cafenet.data import Augmentation
        >>> Augmentation(padding=4, flip=True).erasing
        0.0
    """

    resized_crop: bool = False
    """If True, 8% to 100% of the area is cut out at proportions of 3:4 to 4:3 and scaled to the size of the input."""
    padding: Count = 0
    """Number of black pixels that are added on all sides before a random crop to the original size."""
    flip: bool = False
    """If True, an image is mirrored left to right with probability 1/2."""
    erasing: Share = 0.0
    """Probability of blanking a random rectangle (random erasing)."""

    def __post_init__(self) -> None:
        check_options(self, DataError)

    @property
    def draws(self) -> bool:
        """True if a batch needs the random numbers of its examples."""
        return bool(self.padding or self.flip or self.erasing)


NONE = Augmentation()
"""No augmentation."""


def augment(images: Tensor, draws: Tensor, augmentation: Augmentation) -> Tensor:
    """Crop and flip a batch of images.

    Args:
        images: Images, shape (B, C, H, W).
        draws: Eight random numbers per image, shape (B, 8).
        augmentation: The changes to make.

    Returns:
        The changed images.
    """
    if augmentation.padding:
        images = random_crop(images, draws[:, :2], augmentation.padding)
    if augmentation.flip:
        images = torch.where((draws[:, 2] < 0.5)[:, None, None, None], images.flip(3), images)
    return images


def random_crop(images: Tensor, draws: Tensor, padding: int) -> Tensor:
    """Shift each image by -padding to +padding pixels in both directions; pixels from outside are black.

    Args:
        images: Images, shape (B, C, H, W).
        draws: Two random numbers per image, shape (B, 2).
        padding: Largest shift in pixels.

    Returns:
        The shifted images.
    """
    height, width = images.shape[2:]
    padded = functional.pad(images, (padding,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view: (B, C, rows, columns, H, W)
    row, column = (draws * (2 * padding + 1)).long().unbind(1)
    return windows[torch.arange(len(images)), :, row, column]


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Convert images from uint8 to float32 with mean 0 and deviation 1: a pixel of 255 becomes (1 - mean) / std.

    Args:
        images: Images, shape (B, C, H, W).
        mean: Mean of each channel, for pixels between 0 and 1.
        std: Standard deviation of each channel, for pixels between 0 and 1.

    Returns:
        The normalised images.
    """
    shift, scale = (255 * torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
    return images.float().sub_(shift).div_(scale)


def erase(images: Tensor, draws: Tensor, probability: float) -> Tensor:
    """Set a rectangle of some normalised images to 0, the mean colour, in place.

    The rectangle covers 2% to 33% of the area at proportions of 0.3 to 3.3, and a part outside the image is cut off.
    (Other implementations draw such a rectangle again.)

    Args:
        images: Normalised images, shape (B, C, H, W).
        draws: Eight random numbers per image, shape (B, 8).
        probability: Probability that an image is changed.

    Returns:
        The tensor itself.
    """
    height, width = images.shape[2:]
    is_erased, area, ratio, row, column = draws[:, 3:].unbind(1)
    area = height * width * (_ERASED_AREA[0] + area * (_ERASED_AREA[1] - _ERASED_AREA[0]))
    low, high = map(math.log, _ERASED_RATIO)
    ratio = torch.exp(low + ratio * (high - low))
    tall = (area * ratio).sqrt().round().clamp(1, height)
    wide = (area / ratio).sqrt().round().clamp(1, width)
    top, left = (row * (height - tall + 1)).floor(), (column * (width - wide + 1)).floor()
    rows, columns = torch.arange(height), torch.arange(width)
    in_rows = (rows >= top[:, None]) & (rows < (top + tall)[:, None]) & (is_erased < probability)[:, None]
    in_columns = (columns >= left[:, None]) & (columns < (left + wide)[:, None])
    return images.masked_fill_((in_rows[:, :, None] & in_columns[:, None, :])[:, None], 0.0)
