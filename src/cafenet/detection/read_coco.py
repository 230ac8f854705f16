"""Reader of a COCO-style JSON file beside a folder of images; all mistakes are counted and named before any
training."""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from cafenet.detection.dataset import Box, CocoData, Picture
from cafenet.detection.errors import DetectionError, named

_TOLERANCE = 1.0  # pixels by which rounding may push a box over the edge of its image


def read_coco(
    path: str | os.PathLike[str],
    images: str | os.PathLike[str],
    *,
    bad_boxes: Literal["error", "drop"] = "error",
) -> CocoData:
    """Read a JSON file of images, annotations and categories; one message names every mistake in it.

    Args:
        path: The JSON file.
        images: Folder that its file names are relative to.
        bad_boxes: "error" refuses boxes without size or outside their image; "drop" leaves them out and counts them
            (COCO itself has some).

    Returns:
        The data set.

    Raises:
        DetectionError: If the file cannot be read, or an image, a category or a box is wrong.
    """
    content = _sections(Path(path))
    problems = _Problems(f"{path}")
    categories = _categories(content["categories"], problems)
    entries = _entries(content["images"], Path(images), problems)
    labels = {number: label for label, (number, _) in enumerate(categories, start=1)}
    boxes, dropped = _boxes(content["annotations"], entries, labels, problems, drop=bad_boxes == "drop")
    _check_files(entries.values(), problems)
    problems.raise_if_any()
    pictures = tuple(
        replace(each, boxes=tuple(boxes.get(number, ())), num_dropped=dropped[number])
        for number, each in entries.items()
    )
    if not any(not box.is_crowd for picture in pictures for box in picture.boxes):
        raise DetectionError(f"{path} must have at least one box to learn from, but has none")
    return CocoData(Path(path).name, pictures, tuple(categories))


class _Problems:
    """Collects what is wrong with a file: how often each kind occurs, and its first places."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._found: dict[str, list[str]] = {}

    def add(self, kind: str, where: str = "") -> None:
        """Record a problem and its place."""
        self._found.setdefault(kind, []).append(where)

    def raise_if_any(self) -> None:
        """Raise one error that names all problems, if there are any."""
        if not self._found:
            return
        lines = [
            f"{kind}" if places == [""] else f"{len(places)} {kind} ({named(places)})"
            for kind, places in self._found.items()
        ]
        remedy = ""
        if any("boxes" in kind for kind in self._found):
            remedy = "; correct them, or leave boxes without size or place out with data.bad_boxes drop"
        raise DetectionError(f"{self._name} must describe images and boxes, but has " + "; ".join(lines) + remedy)


def _sections(path: Path) -> dict[str, list[Any]]:
    """Return the three lists of a COCO file."""
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise DetectionError(f"the annotations {path} must be a readable file, but: {error.strerror}") from error
    except ValueError as error:
        raise DetectionError(f"the annotations {path} must be JSON, but: {error}") from error
    if not isinstance(content, dict):
        raise DetectionError(f"{path} must hold images, annotations and categories, but is a {type(content).__name__}")
    sections = {name: content.get(name) for name in ("images", "annotations", "categories")}
    missing = [name for name, value in sections.items() if not isinstance(value, list) or not value]
    if missing:
        raise DetectionError(
            f"{path} must hold images, annotations and categories, but has no {', no '.join(missing)}; it is not in "
            "COCO's format, or not complete"
        )
    return {name: value for name, value in sections.items() if value is not None}


def _categories(found: Sequence[Any], problems: _Problems) -> list[tuple[int, str]]:
    """Return id and name of the categories, sorted."""
    categories = []
    for entry in found:
        if isinstance(entry, dict) and isinstance(entry.get("id"), int) and entry.get("name"):
            categories.append((entry["id"], str(entry["name"])))
        else:
            problems.add("categories without an id and a name", f"{entry!r:.40}")
    for what, values in (("ids", [number for number, _ in categories]), ("names", [name for _, name in categories])):
        for value in _repeated(values):
            problems.add(f"{what} that two categories share", str(value))
    return sorted(categories)


def _entries(found: Sequence[Any], folder: Path, problems: _Problems) -> dict[int, Picture]:
    """Return the images by id, without boxes."""
    entries: dict[int, Picture] = {}
    for entry in found:
        sizes: list[Any] = [entry.get(name) for name in ("width", "height")] if isinstance(entry, dict) else []
        if not sizes or not _is_number(entry.get("id")) or not isinstance(entry.get("file_name"), str):
            problems.add("images without an id and a file_name", f"{entry!r:.60}")
        elif not all(_is_number(size) and size > 0 for size in sizes):
            problems.add("images without a width and a height", entry["file_name"])
        elif entry["id"] in entries:
            problems.add("images with the id of another one", f"{entry['file_name']} has id {entry['id']}")
        else:
            path = str(folder / entry["file_name"])
            entries[entry["id"]] = Picture(entry["id"], path, int(sizes[0]), int(sizes[1]), ())
    for path in _repeated([each.path for each in entries.values()]):
        problems.add("files that two images share", path)
    return entries


def _boxes(
    found: Sequence[Any],
    entries: Mapping[int, Picture],
    labels: Mapping[int, int],
    problems: _Problems,
    *,
    drop: bool,
) -> tuple[dict[int, list[Box]], Counter[int]]:
    """Return the boxes of each image by its id, and how many were dropped."""
    boxes: dict[int, list[Box]] = {}
    dropped: Counter[int] = Counter()
    for number in _repeated([entry.get("id") for entry in found if isinstance(entry, dict) and "id" in entry]):
        problems.add("annotations with the id of another one", f"id {number}")
    for place, entry in enumerate(found):
        if not isinstance(entry, dict):
            problems.add("annotations that are no objects", f"number {place}")
            continue
        name = f"annotation {entry.get('id', place)}"
        picture = entries.get(_hashable(entry.get("image_id")))
        label = labels.get(_hashable(entry.get("category_id")))
        if picture is None:
            problems.add("annotations of images that are not listed", f"{name}: image {entry.get('image_id')}")
        elif label is None:
            problems.add("annotations of categories that are not listed", f"{name}: {entry.get('category_id')}")
        else:
            corners, problem = _corners(entry.get("bbox"), picture)
            if corners is not None:
                area: Any = entry.get("area")
                area = float(area) if _is_number(area) else (corners[2] - corners[0]) * (corners[3] - corners[1])
                boxes.setdefault(picture.id, []).append(Box(corners, label, area, bool(entry.get("iscrowd"))))
            elif drop:
                dropped[picture.id] += 1
            else:
                problems.add(problem, f"{name} of {Path(picture.path).name}: {entry.get('bbox')}")
    return boxes, dropped


def _corners(bbox: Any, picture: Picture) -> tuple[tuple[float, float, float, float] | None, str]:
    """Return x1, y1, x2, y2 of a box (x, y, width, height), clipped by no more than rounding explains, or what is
    wrong."""
    if not isinstance(bbox, list) or len(bbox) != 4 or not all(_is_number(value) for value in bbox):
        return None, "boxes that are not four numbers"
    left, top, right, bottom = bbox[0], bbox[1], bbox[0] + bbox[2], bbox[1] + bbox[3]
    if bbox[2] <= 0 or bbox[3] <= 0:
        return None, "boxes of zero size"
    over = max(-left, -top, right - picture.width, bottom - picture.height)
    clipped = (
        float(max(left, 0)),
        float(max(top, 0)),
        float(min(right, picture.width)),
        float(min(bottom, picture.height)),
    )
    if over > _TOLERANCE or clipped[2] <= clipped[0] or clipped[3] <= clipped[1]:
        return None, "boxes outside the image"
    return clipped, ""


def _check_files(pictures: Iterable[Picture], problems: _Problems) -> None:
    """Check that every file exists, is an image, and has the size that the JSON gives (only headers are read)."""
    for picture in pictures:
        if not os.path.isfile(picture.path):
            problems.add("missing images", picture.path)
            continue
        size = _size_of(picture.path)
        if size is None:
            problems.add("images that cannot be read", picture.path)
        elif size != (picture.width, picture.height):
            said = f"{picture.width}x{picture.height}"
            problems.add("images of another size", f"{Path(picture.path).name} is {size[0]}x{size[1]}, said {said}")


def _size_of(path: str) -> tuple[int, int] | None:
    """Return width and height from an image's header, or None if it has none."""
    library = import_module("PIL.Image")
    try:
        with library.open(path) as image:
            return int(image.width), int(image.height)
    except (OSError, SyntaxError, ValueError, library.DecompressionBombError):
        return None


def _repeated(values: Sequence[Any]) -> list[Any]:
    """Return the values that occur more than once."""
    return [value for value, count in Counter(map(_hashable, values)).items() if count > 1]


def _hashable(value: Any) -> Any:
    """Return a value that can be a dictionary key."""
    return value if isinstance(value, (int, float, str)) else repr(value)


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number and not a boolean."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
