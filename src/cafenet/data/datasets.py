"""The data model: images, targets, names of classes, and the statistics that images are normalised with."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cafenet.errors import DataError

IntArray: TypeAlias = npt.NDArray[np.int64]
"""Array of int64 numbers."""
_Data = TypeVar("_Data", bound="ImageData")


@dataclass(frozen=True, eq=False)
class ImageData:
    """Images with their targets.

    Ten images of 28x28 in two classes: `images` uint8 of shape (10, 1, 28, 28), `targets` int64 of shape (10,) with
    values 0 and 1, `classes` ("boot", "bag"), `mean` (0.29,), `std` (0.35,) for pixels between 0 and 1.
    """

    name: str
    """Name of the data set in messages and reports."""
    images: Tensor | Sequence[Tensor]
    """Images in memory as one uint8 tensor (N, C, H, W), or a sequence of uint8 tensors (C, H, W), which may be read
    from files when they are needed."""
    targets: Tensor
    """Class numbers (N,) as int64, or one zero or one per attribute (N, A) as float32."""
    classes: tuple[str, ...]
    """Names of the classes, or of the attributes."""
    mean: tuple[float, ...]
    """Mean of each channel, for pixels between 0 and 1."""
    std: tuple[float, ...]
    """Standard deviation of each channel, for pixels between 0 and 1."""

    def __post_init__(self) -> None:
        problems = [*_image_problems(self), *_target_problems(self)]
        if problems:
            raise DataError(f"{self.name}: " + "; ".join(problems))

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def is_multi_label(self) -> bool:
        """True if an image has attributes instead of one class."""
        return self.targets.ndim == 2

    def subset(self: _Data, indices: IntArray | Sequence[int]) -> _Data:
        """Return some of the examples; images in memory are copied.

        Args:
            indices: Numbers of the examples, in the wanted order.

        Returns:
            A data set of the same kind.
        """
        index = torch.as_tensor(np.asarray(indices, dtype=np.int64))
        return replace(self, images=_take(self.images, index), targets=self.targets[index])


@dataclass(frozen=True)
class DataSets:
    """A training set, and a test set that neither training nor search may see."""

    train: ImageData
    """The training set."""
    test: ImageData
    """The test set."""

    def __post_init__(self) -> None:
        difference = class_difference((self.train.name, self.train.classes), (self.test.name, self.test.classes))
        if difference:
            raise DataError(f"training and test set must have the same classes, but {difference}")
        if not self.train.is_multi_label:
            num_images = torch.bincount(self.train.targets, minlength=len(self.train.classes))
            empty = [name for name, count in zip(self.train.classes, num_images.tolist(), strict=True) if not count]
            if empty:
                raise DataError(
                    f"every class must have training images, but {self.train.name} has none of {_some(empty)}"
                )


def class_difference(first: tuple[str, Sequence[str]], second: tuple[str, Sequence[str]]) -> str:
    """Return what two lists of classes differ in, as the end of a message.

    Args:
        first: Name of a data set, and its classes in the order of their numbers.
        second: Those of another one.

    Returns:
        A sentence about classes that only one of them has, or about their order, with the remedy; "" if they are the
        same.

    Example:
        >>> from cafenet.data.datasets import class_difference
        >>> class_difference(("train", ["ant", "bee"]), ("val", ["ant", "bees"]))
        'only train has bee, only val has bees; give both the same classes in the same order'
    """
    (name, classes), (other, others) = first, second
    if list(classes) == list(others):
        return ""
    alone = ((name, [each for each in classes if each not in others]), (other, [e for e in others if e not in classes]))
    found = [f"only {whose} has {_some(names)}" for whose, names in alone if names]
    if not found:
        found = [f"{name} has them in the order {_some(classes)} and {other} in the order {_some(others)}"]
    return f"{', '.join(found)}; give both the same classes in the same order"


def to_rgb(data: ImageData) -> ImageData:
    """Turn grey images in memory into three equal channels, for networks that take colour images.

    Args:
        data: Data with images of one channel.

    Returns:
        The data with three channels.

    Raises:
        DataError: If the images are not in memory or do not have one channel.
    """
    if not isinstance(data.images, Tensor) or data.images.shape[1] != 1:
        raise DataError(f"{data.name} must hold images of one channel in memory to be turned into three")
    return replace(data, images=data.images.repeat(1, 3, 1, 1), mean=data.mean * 3, std=data.std * 3)


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Compute the mean and standard deviation of each channel, for pixels between 0 and 1, to four digits.

    Args:
        images: uint8 images, shape (N, C, H, W).

    Returns:
        Means and deviations. A channel that is half black and half white has (0.5, 0.5); a channel of one colour gets
        the deviation 1.
    """
    levels = torch.arange(256, dtype=torch.float64) / 255
    means, stds = [], []
    for channel in range(images.shape[1]):
        share = torch.bincount(images[:, channel].flatten(), minlength=256).double()
        share /= share.sum()
        mean = float((share * levels).sum())
        means.append(round(mean, 4))
        stds.append(round(float((share * (levels - mean) ** 2).sum().sqrt()), 4) or 1.0)
    return tuple(means), tuple(stds)


def _take(images: Tensor | Sequence[Tensor], index: Tensor) -> Tensor | Sequence[Tensor]:
    """Return some of the images; files are chosen by name without reading them."""
    if isinstance(images, Tensor):
        return images[index]
    take: Any = getattr(images, "take", None)  # files are chosen by name, without reading them
    return take(index.tolist()) if take else tuple(images[number] for number in index.tolist())


def _image_problems(data: ImageData) -> list[str]:
    """Return what is wrong with the images."""
    problems = []
    if len(data.images) != len(data.targets):
        problems.append(f"there must be one target an image, but {len(data.images)} and {len(data.targets)} were given")
    if not len(data.images):
        problems.append("a data set must hold at least one image, but is empty")
    if isinstance(data.images, Tensor) and (data.images.dtype != torch.uint8 or data.images.ndim != 4):
        shape = list(data.images.shape)
        problems.append(f"images must be uint8 of shape (N, C, H, W), but are {data.images.dtype} of shape {shape}")
    elif isinstance(data.images, Tensor) and not len(data.mean) == len(data.std) == data.images.shape[1]:
        problems.append(
            f"mean and std must have one number a channel, but have {len(data.mean)} and {len(data.std)} for images of "
            f"{data.images.shape[1]}"
        )
    if not all(value > 0 for value in data.std):
        problems.append(f"std must be positive, but is {data.std}")
    return problems


def _target_problems(data: ImageData) -> list[str]:
    """Return what is wrong with the targets."""
    targets, num_classes = data.targets, len(data.classes)
    if targets.ndim == 2 and targets.dtype == torch.float32:
        problems = []
        if targets.shape[1] != num_classes:
            problems.append(f"there must be a name for each attribute, but {targets.shape[1]} have {num_classes} names")
        if not bool(((targets == 0) | (targets == 1)).all()):
            problems.append("attributes must be zeros and ones, but there are other values")
        return problems
    if targets.ndim != 1 or targets.dtype != torch.int64:
        shape = list(targets.shape)
        return [f"targets must be int64 (N,) or float32 (N, A), but are {targets.dtype} of shape {shape}"]
    low, high = (int(targets.min()), int(targets.max())) if len(targets) else (0, 0)
    if low < 0 or high >= num_classes:
        return [
            f"labels must lie in 0 to {num_classes - 1}, the number of classes less one, but lie in {low} to {high}"
        ]
    return []


def _some(names: Sequence[str]) -> str:
    """Return the first five names for a message."""
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
