"""Images with boxes and classes, as a COCO-style file describes them, and their division into two parts."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cafenet.detection.errors import DetectionError, named


@dataclass(frozen=True)
class Box:
    """One annotation: its corners in pixels, clipped to the image, and its class, counted from 1."""

    corners: tuple[float, float, float, float]
    label: int
    area: float
    """Of the thing, as the file says, or else of the box: what decides whether it is small, medium or large."""
    is_crowd: bool = False
    """Many things under one box: not learned from, and not counted against a detector."""


@dataclass(frozen=True)
class Picture:
    """One image with its boxes."""

    id: int
    path: str
    width: int
    height: int
    boxes: tuple[Box, ...]
    num_dropped: int = 0
    """Boxes that were of no use, where the caller asked to drop them."""


@dataclass(frozen=True)
class CocoData:
    """Images with boxes: of two images and the categories 1 (cat) and 7 (dog), the labels are 1 and 2."""

    name: str
    pictures: tuple[Picture, ...]
    categories: tuple[tuple[int, str], ...]
    """Id in the file and name; the first is label 1."""

    def __len__(self) -> int:
        return len(self.pictures)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names, label 1 first."""
        return tuple(name for _, name in self.categories)

    @property
    def num_dropped(self) -> int:
        """Boxes of all images that were left out."""
        return sum(picture.num_dropped for picture in self.pictures)

    def digest(self) -> str:
        """A short name for the content; names and sizes of images stand for their pixels."""
        digest = hashlib.blake2b(repr(self.categories).encode(), digest_size=8)
        for picture in self.pictures:
            digest.update(repr(replace(picture, path=Path(picture.path).name)).encode())
        return digest.hexdigest()

    def document(self) -> dict[str, Any]:
        """Images, annotations and categories, for pycocotools."""
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
    """Two parts, of which the second has `share` of the images, drawn by a seed: of 10 images, 0.2 takes 2."""
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
    """Both parts must name the same classes, and no image may be in both."""
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
