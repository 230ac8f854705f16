"""Random changes of training images, for a whole batch at once.

The chance is drawn apart from the work: every example brings eight numbers between 0 and 1, and what happens to it is a
function of these. `cafenet.training.batch_feed` seeds the draw with seed, epoch and example, so a resumed run continues
bit for bit, whatever the batch that an example falls into and whoever prepares it.
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
    """What may happen to a training image."""

    resized_crop: bool = False
    """Cut out 8% to 100% of the area at proportions of 3:4 to 4:3, and scale it to the size of the input."""
    padding: Count = 0
    """Add so many black pixels on all sides, then crop at random to the size before."""
    flip: bool = False
    """Mirror left and right, every other time."""
    erasing: Share = 0.0
    """Probability of blanking a random rectangle (random erasing)."""

    def __post_init__(self) -> None:
        check_options(self, DataError)

    @property
    def draws(self) -> bool:
        """Whether a batch needs the examples' numbers."""
        return bool(self.padding or self.flip or self.erasing)


NONE = Augmentation()


def augment(images: Tensor, draws: Tensor, augmentation: Augmentation) -> Tensor:
    """Crop and flip a batch (B, C, H, W); `draws` is (B, 8)."""
    if augmentation.padding:
        images = random_crop(images, draws[:, :2], augmentation.padding)
    if augmentation.flip:
        images = torch.where((draws[:, 2] < 0.5)[:, None, None, None], images.flip(3), images)
    return images


def random_crop(images: Tensor, draws: Tensor, padding: int) -> Tensor:
    """Shift each image by -padding to +padding pixels both ways; what enters is black."""
    height, width = images.shape[2:]
    padded = functional.pad(images, (padding,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view: (B, C, rows, columns, H, W)
    row, column = (draws * (2 * padding + 1)).long().unbind(1)
    return windows[torch.arange(len(images)), :, row, column]


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """From uint8 to float32 with mean 0 and deviation 1: a pixel of 255 becomes (1 - mean) / std."""
    shift, scale = (255 * torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
    return images.float().sub_(shift).div_(scale)


def erase(images: Tensor, draws: Tensor, probability: float) -> Tensor:
    """Set a rectangle of some normalised images to 0, the mean colour, in place.

    It covers 2% to 33% of the area at proportions of 0.3 to 3.3; what sticks out is cut off. Elsewhere such a rectangle
    is drawn again.
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
