"""Data sets in `npz` files, as numpy writes them.

A data set is a directory with `train.npz` and `test.npz`, each with the arrays `images` and `labels`, or one file with
the arrays `train_images`, `train_labels`, `test_images` and `test_labels`. Images are uint8 (N, H, W, C), or (N, H, W)
if grey; labels are integers (N,), or zeros and ones (N, A) for attributes; `classes`, if given, holds the names.
"""

import math
import zipfile
from pathlib import Path
from tokenize import TokenError

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cafenet.common.limits import ARRAY_BYTES
from cafenet.data.datasets import DataSets, ImageData, channel_statistics
from cafenet.errors import DataError

_MOST_CLASSES = 10**6

_Arrays = dict[str, npt.NDArray[np.generic]]


def load_npz(path: str | Path, name: str | None = None) -> DataSets:
    """Read a training and a test set; images are normalised with the statistics of the training set's pixels.

    Args:
        path: A directory or an npz file.
        name: Name of the data set in messages, by default the name of the file or directory.

    Returns:
        The training and the test set.

    Raises:
        DataError: If a file or an array is missing, damaged or of another kind.
    """
    path = Path(path)
    if path.is_dir():
        train, test = _read(path / "train.npz", ""), _read(path / "test.npz", "")
    elif path.is_file():
        train, test = _read(path, "train_"), _read(path, "test_")
    else:
        raise DataError(
            f"an npz data set must be a file or a directory with train.npz and test.npz, but no {path} exists"
        )
    name = path.stem if name is None else name
    train_images, train_targets = _images(train, path), _targets(train, path)
    classes = _classes(train, train_targets)
    mean, std = channel_statistics(train_images)
    return DataSets(
        ImageData(f"{name}, training set", train_images, train_targets, classes, mean, std),
        ImageData(f"{name}, test set", _images(test, path), _targets(test, path), classes, mean, std),
    )


def _read(path: Path, prefix: str) -> _Arrays:
    """Return the arrays of one set without the prefix; one error names all that are missing."""
    if not path.is_file():
        raise DataError(f"an npz data set must have a training and a test set, but no {path} exists")
    wanted = [prefix + "images", prefix + "labels"]
    try:
        with path.open("rb") as raw:
            if raw.read(6) == b"\x93NUMPY":
                raise DataError(f"{path} must be an npz file, as numpy.savez writes it, but holds a single array")
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in wanted if name not in file.files]
            if missing:
                found = ", ".join(file.files) or "nothing"
                raise DataError(f"{path} must hold the arrays {' and '.join(wanted)}, but holds {found}")
            names = [*wanted, *(name for name in ("classes",) if name in file.files)]
            for name in names:
                _check_header(path, name)
            return {name.removeprefix(prefix): file[name] for name in names}
    except (OSError, ValueError, EOFError, SyntaxError, TokenError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} must be an npz file of plain arrays, but cannot be read: {error}") from error


def _check_header(path: Path, name: str) -> None:
    """Check that the file holds what an array's header claims, within the limit, before memory is reserved for it."""
    with zipfile.ZipFile(path) as archive:
        entry = next(each for each in archive.infolist() if each.filename in (name, f"{name}.npy"))
        with archive.open(entry) as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
    claimed = math.prod(shape) * dtype.itemsize
    ARRAY_BYTES.check(max(claimed, entry.file_size), f"the bytes of {name} in {path}", DataError)
    if not dtype.hasobject and claimed > entry.file_size:
        raise ValueError(f"{name} claims {claimed:,} bytes of shape {list(shape)}, but has {entry.file_size:,}")


def _images(arrays: _Arrays, path: Path) -> Tensor:
    """Return the images as a tensor (N, C, H, W)."""
    images = arrays["images"]
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] not in (1, 3)):
        raise DataError(
            f"images of {path} must be uint8 of shape (N, H, W), (N, H, W, 1) or (N, H, W, 3), but are "
            f"{images.dtype} of shape {list(images.shape)}"
        )
    pixels = torch.from_numpy(images)
    return pixels.unsqueeze(1) if images.ndim == 3 else pixels.permute(0, 3, 1, 2).contiguous()


def _targets(arrays: _Arrays, path: Path) -> Tensor:
    """Return the labels as a tensor."""
    labels = arrays["labels"]
    if labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer):
        return torch.from_numpy(labels.astype(np.int64))
    if labels.ndim == 2 and (labels.dtype == bool or np.issubdtype(labels.dtype, np.number)):
        return torch.from_numpy(labels.astype(np.float32))
    raise DataError(
        f"labels of {path} must be integers of shape (N,) or zeros and ones of shape (N, A), but are {labels.dtype} of "
        f"shape {list(labels.shape)}"
    )


def _classes(arrays: _Arrays, targets: Tensor) -> tuple[str, ...]:
    """Return the names of the classes, or numbers as names."""
    if "classes" in arrays:
        if arrays["classes"].ndim != 1:
            raise DataError(f"classes must be a list of names, but has shape {list(arrays['classes'].shape)}")
        return tuple(str(name) for name in arrays["classes"].tolist())
    if targets.ndim == 1 and len(targets) and int(targets.max()) >= _MOST_CLASSES:
        raise DataError(
            f"labels must be below {_MOST_CLASSES:,}, but one is {int(targets.max()):,}; number the classes from 0 on"
        )
    num_classes = targets.shape[1] if targets.ndim == 2 else max(0, int(targets.max())) + 1 if len(targets) else 0
    return tuple(map(str, range(num_classes)))
