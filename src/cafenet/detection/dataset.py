"""Images with boxes and classes, as a COCO-style file describes them, and their division into two parts."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cafenet.detection.errors import DetectionError, named


@dataclass(frozen=True)
class Box:
    """One annotation."""

    corners: tuple[float, float, float, float]
    """x1, y1, x2 and y2 in pixels, clipped to the image."""
    label: int
    """Number of the class, counted from 1."""
    area: float
    """Area of the object as the file gives it, otherwise of the box. It decides whether the object is small, medium or
    large."""
    is_crowd: bool = False
    """True for a box over many objects: it is not trained on and not counted against a detector."""


@dataclass(frozen=True)
class Picture:
    """One image with its boxes."""

    id: int
    """Id of the image in the file."""
    path: str
    """Path of the image."""
    width: int
    """Width in pixels."""
    height: int
    """Height in pixels."""
    boxes: tuple[Box, ...]
    """The annotations of the image."""
    num_dropped: int = 0
    """Number of unusable boxes that were dropped, if the caller asked for that."""


@dataclass(frozen=True)
class CocoData:
    """Images with boxes; for the categories 1 (cat) and 7 (dog), the labels are 1 and 2."""

    name: str
    """Name of the data set in messages."""
    pictures: tuple[Picture, ...]
    """The images with their boxes."""
    categories: tuple[tuple[int, str], ...]
    """Id in the file and name of each class; the first one has label 1."""

    def __len__(self) -> int:
        return len(self.pictures)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, label 1 first."""
        return tuple(name for _, name in self.categories)

    @property
    def num_dropped(self) -> int:
        """Number of boxes in all images that were dropped."""
        return sum(picture.num_dropped for picture in self.pictures)

    def digest(self) -> str:
        """Return a short digest of the content, with names and sizes of images in place of their pixels.

        Returns:
            16 hexadecimal digits.
        """
        digest = hashlib.blake2b(repr(self.categories).encode(), digest_size=8)
        for picture in self.pictures:
            digest.update(repr(replace(picture, path=Path(picture.path).name)).encode())
        return digest.hexdigest()

    def document(self) -> dict[str, Any]:
        """Return images, annotations and categories in COCO's format, for pycocotools.

        Returns:
            The content of a COCO file.
        """
        annotations: list[dict[str, Any]] = []
        for picture in self.pictures:
            for box in picture.boxes:
                left, top, right, bottom = box.corners
                size = (right - left, bottom - top)
                annotations.append(
                    {
                        "id": len(annotations) + 1,
                        "image_id": picture.id,
                        "category_id": self.categories[box.label - 1][0],
                        "bbox": [left, top, *size],
                        "area": box.area,
                        "iscrowd": int(box.is_crowd),
                    }
                )
        return {
            "info": {},
            "images": [{"id": each.id, "width": each.width, "height": each.height} for each in self.pictures],
            "annotations": annotations,
            "categories": [{"id": number, "name": name} for number, name in self.categories],
        }


def divide(data: CocoData, share: float, seed: int = 0) -> tuple[CocoData, CocoData]:
    """Divide the images at random into two parts; of 10 images, a share of 0.2 takes 2.

    Args:
        data: The data set.
        share: Share of the images in the second part.
        seed: Seed of the division.

    Returns:
        The training part and the test part.

    Raises:
        DetectionError: If one part would be empty.
    """
    num_second = round(share * len(data))
    if not 0 < num_second < len(data):
        raise DetectionError(f"a share of {share} of {len(data)} images must leave some on both sides, but it does not")
    order = np.random.default_rng(seed).permutation(len(data))
    parts = [
        replace(data, name=f"{data.name} ({kind})", pictures=tuple(data.pictures[number] for number in sorted(numbers)))
        for kind, numbers in (("train", order[num_second:]), ("test", order[:num_second]))
    ]
    return parts[0], parts[1]


def check_pair(train: CocoData, test: CocoData) -> None:
    """Check that both parts have the same classes and no image in common.

    Args:
        train: The training part.
        test: The test part.

    Raises:
        DetectionError: If the classes differ, or an image is in both parts.
    """
    if train.categories != test.categories:
        raise DetectionError(
            f"{train.name} and {test.name} must have the same categories in the same order, but have "
            f"{named(train.classes)} and {named(test.classes)}"
        )
    common = sorted({each.path for each in train.pictures} & {each.path for each in test.pictures})
    if common:
        raise DetectionError(
            f"no image may be trained on and tested on, but {len(common)} are in both {train.name} and {test.name} "
            f"({named(common)})"
        )
