"""CelebA: faces with 40 attributes, in the layout of its authors or as a CSV table.

The official layout has `list_attr_celeba.txt`, `list_eval_partition.txt` and the directory `img_align_celeba`. Part 0
is the training set and part 2 the test set, as in the paper; part 1 is not used, because a tenth of the training set
serves for validation. (torchvision reads this layout only together with files that are not needed here.)

The CSV layout has `attributes.csv` with the column `image` and one column of zeros and ones per attribute, and the
directory `images`. It has no partition, so a fixed sixth of the images is the test set.
"""

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from cafenet.data.datasets import DataSets, ImageData, IntArray
from cafenet.data.image_files import CACHE_LIMIT_BYTES, image_files, in_memory
from cafenet.data.split import stratified_split
from cafenet.errors import DataError

MEAN, STD = (0.5056, 0.4260, 0.3836), (0.3085, 0.2895, 0.2888)
"""Mean and standard deviation of the pixels of the first 6,000 images."""

_TEST_SHARE, _TEST_SEED = 1 / 6, 0
_Table = tuple[list[str], list[str], npt.NDArray[np.float32]]


def load_celeba(
    root: str | Path, *, size: tuple[int, int] = (224, 160), cache_limit_bytes: int = CACHE_LIMIT_BYTES
) -> DataSets:
    """Read either layout; every image is scaled to cover `size` and cropped to it, in the middle.

    Args:
        root: Directory of the data set.
        size: Height and width of the images.
        cache_limit_bytes: Largest size of decoded images that are kept in memory, per set; 2 GiB hold 20,000 of
            224x160.

    Returns:
        The training and the test set.

    Raises:
        DataError: If the directory has neither layout, or a file is missing or damaged.
    """
    root = Path(root)
    if (root / "list_attr_celeba.txt").is_file():
        names, files, attributes = _read_official(root / "list_attr_celeba.txt")
        train, test = _read_partition(root / "list_eval_partition.txt", files)
        folder = root / "img_align_celeba"
    elif (root / "attributes.csv").is_file():
        names, files, attributes = _read_csv(root / "attributes.csv")
        train, test = stratified_split(torch.from_numpy(attributes), _TEST_SHARE, _TEST_SEED)
        folder = root / "images"
    else:
        raise DataError(f"{root} must hold list_attr_celeba.txt (official) or attributes.csv, but has neither")
    if not folder.is_dir():
        raise DataError(f"the images of CelebA must lie in {folder}, but there is no such directory")

    def part(kind: str, index: IntArray) -> ImageData:
        images = image_files([str(folder / files[number]) for number in index], size)
        targets = torch.from_numpy(attributes[index])
        return in_memory(ImageData(f"CelebA, {kind} set", images, targets, tuple(names), MEAN, STD), cache_limit_bytes)

    return DataSets(part("training", train), part("test", test))


def _read_official(path: Path) -> _Table:
    """Read the number of images, the names of the attributes, then one line per image with its attributes, 1 or -1."""
    lines = path.read_text().splitlines()
    if len(lines) < 3:
        raise DataError(
            f"{path} must hold a count, the names of attributes and one line an image, but has {len(lines)} lines"
        )
    names = lines[1].split()
    files, attributes = _table(path, [line.split() for line in lines[2:] if line.strip()], len(names), first_line=3)
    _check_values(path, attributes, (-1, 1))
    return names, files, (attributes + 1) * np.float32(0.5)


def _read_csv(path: Path) -> _Table:
    """Read a CSV table with a header."""
    with path.open(newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    if len(rows) < 2 or rows[0][0] != "image":
        raise DataError(f"{path} must begin with the columns image and one an attribute, and hold one line an image")
    files, attributes = _table(path, rows[1:], len(rows[0]) - 1, first_line=2)
    _check_values(path, attributes, (0, 1))
    return rows[0][1:], files, attributes


def _table(
    path: Path, rows: list[list[str]], num_attributes: int, first_line: int
) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Return file names and values of rows that must all have the same length."""
    for number, row in enumerate(rows, start=first_line):
        if len(row) != num_attributes + 1:
            raise DataError(
                f"{path}, line {number}, must hold a file and {num_attributes} attributes, but has {len(row)} fields"
            )
    try:
        values = np.array([row[1:] for row in rows]).astype(np.float32)
    except ValueError as error:
        raise DataError(f"attributes of {path} must be numbers: {error}") from error
    return [row[0] for row in rows], values


def _check_values(path: Path, attributes: npt.NDArray[np.float32], allowed: tuple[int, int]) -> None:
    """Refuse values other than the two allowed ones."""
    wrong = np.argwhere(~np.isin(attributes, allowed))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise DataError(
            f"attributes of {path} must be {allowed[0]} or {allowed[1]}, but number {column + 1} of image {row + 1} is "
            f"{attributes[row, column]:g}"
        )


def _read_partition(path: Path, files: list[str]) -> tuple[IntArray, IntArray]:
    """Return the numbers of the training images and of the test images."""
    if not path.is_file():
        raise DataError(f"the official layout must say which images are for training, but there is no {path}")
    part_of = dict(line.split()[:2] for line in path.read_text().splitlines() if len(line.split()) >= 2)
    missing = [file for file in files if file not in part_of]
    if missing:
        raise DataError(f"{path} must name every image, but {len(missing)} are missing, the first being {missing[0]}")
    parts = np.array([part_of[file] for file in files])
    if not np.isin(parts, ("0", "1", "2")).all():
        raise DataError(
            f"{path} must divide images into 0, 1 and 2, but has {', '.join(sorted(set(parts.tolist()))[:5])}"
        )
    return np.flatnonzero(parts == "0"), np.flatnonzero(parts == "2")
