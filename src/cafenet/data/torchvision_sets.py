"""CIFAR-10, CIFAR-100 and folders of images, read by torchvision."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cafenet.common.torchvision_compat import import_torchvision
from cafenet.data.datasets import DataSets, ImageData
from cafenet.data.image_files import CACHE_LIMIT_BYTES, image_files, in_memory
from cafenet.errors import DataError

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CIFAR = {
    "CIFAR10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "CIFAR100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


def load_cifar10(root: str | Path) -> DataSets:
    """Read the official Python files of CIFAR-10.

    Args:
        root: Directory that holds cifar-10-batches-py.

    Returns:
        The training and the test set.

    Raises:
        DataError: If the directory is missing or damaged.
    """
    return _cifar("CIFAR10", Path(root))


def load_cifar100(root: str | Path) -> DataSets:
    """Read the official Python files of CIFAR-100.

    Args:
        root: Directory that holds cifar-100-python.

    Returns:
        The training and the test set.

    Raises:
        DataError: If the directory is missing or damaged.
    """
    return _cifar("CIFAR100", Path(root))


def load_image_folder(
    root: str | Path,
    *,
    test_folder: str = "val",
    size: tuple[int, int] | None = None,
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
    cache_limit_bytes: int = CACHE_LIMIT_BYTES,
) -> DataSets:
    """Read `root/train/CLASS/*` and `root/val/CLASS/*`, the layout of ImageNet; `val` serves as the test set.

    Args:
        root: Directory of the data set.
        test_folder: Name of the directory with the test set.
        size: Height and width that every image is brought to once, for data sets of small images; None keeps the images
            as they are, for resized crops.
        mean: Mean of each channel, for pixels between 0 and 1.
        std: Standard deviation of each channel, for pixels between 0 and 1.
        cache_limit_bytes: Largest size of decoded images that are kept in memory, per set.

    Returns:
        The training and the test set.

    Raises:
        DataError: If a directory is missing, or a file is missing, empty or damaged.
    """
    root = Path(root)
    missing = [folder for folder in ("train", test_folder) if not (root / folder).is_dir()]
    if missing:
        found = ", ".join(sorted(each.name for each in root.iterdir() if each.is_dir())) if root.is_dir() else ""
        raise DataError(
            f"{root} must hold the directories train and {test_folder}, but there is no {' and no '.join(missing)}"
            + (f"; it holds {found}" if found else "" if root.is_dir() else "; it does not exist")
        )

    def read(folder: str) -> ImageData:
        found = _image_folder(root / folder)
        paths, labels = zip(*found.samples, strict=True)
        files = image_files(paths, size)
        name = f"{root.name}/{folder}"
        data = ImageData(name, files, torch.tensor(labels), tuple(found.classes), mean, std)
        return in_memory(data, cache_limit_bytes)

    return DataSets(read("train"), read(test_folder))


def _image_folder(path: Path) -> Any:
    """Let torchvision list the images of a directory."""
    import_torchvision()
    try:
        return import_module("torchvision.datasets").ImageFolder(str(path))
    except FileNotFoundError as error:
        raise DataError(f"{path} must hold one directory of images a class: {error}") from error


def _cifar(kind: str, root: Path) -> DataSets:
    """Read one of the CIFAR data sets."""
    if not root.is_dir():
        raise DataError(f"the directory of {kind} must exist, but there is no {root}")
    import_torchvision()
    library = getattr(import_module("torchvision.datasets"), kind)
    mean, std = _CIFAR[kind]

    def read(is_train: bool) -> ImageData:
        try:
            found = library(str(root), train=is_train)
        except (RuntimeError, OSError, KeyError) as error:
            raise DataError(
                f"{root} must hold the directory {library.base_folder} of {kind}, complete and undamaged ({error}); "
                f"unpack {library.filename} there"
            ) from error
        images = torch.from_numpy(np.ascontiguousarray(found.data.transpose(0, 3, 1, 2)))
        name = f"{kind}, {'training' if is_train else 'test'} set"
        return ImageData(name, images, torch.tensor(found.targets), tuple(found.classes), mean, std)

    return DataSets(read(True), read(False))
