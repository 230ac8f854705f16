"""Sample images for the report: small copies in the run directory, and boxes drawn on them."""

import base64
import io
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from cafenet.common.read_files import read_what_is_left
from cafenet.common.run_files import SAMPLES
from cafenet.common.run_places import SAMPLE_IMAGES
from cafenet.common.write_files import write_file
from cafenet.detection.dataset import CocoData

_COLOURS = ("#2f9bff", "#ff8c1a", "#00c48c", "#e052c0", "#f0d000", "#7a5cff", "#ff4d5e")
"""Colours of classes, which stand out from photographs."""
_MOST_PIXELS = 320
"""Length of the longer side: four samples of four detectors make a page of some hundred kilobytes."""


def write_samples(data: CocoData, num_samples: int, directory: Path, data_digest: str) -> None:
    """Copy images, spread evenly over the data, with their boxes: `samples.json` and `samples/*.jpg`.

    They are copied once, and again if the file is damaged or belongs to other data.

    Args:
        data: The test images.
        num_samples: Number of images.
        directory: The run directory.
        data_digest: Digest of the data.
    """
    identity = {"data": data_digest, "num_samples": num_samples}
    found = read_what_is_left(SAMPLES, directory, [])
    if found is not None and found.get("identity") == identity:
        return
    library = import_module("PIL.Image")
    step = max(1, len(data) // max(1, num_samples))
    entries = []
    for picture in data.pictures[::step][:num_samples]:
        path = directory / SAMPLE_IMAGES / f"{picture.id}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        with library.open(picture.path) as image:
            small = image.convert("RGB")
            small.thumbnail((_MOST_PIXELS, _MOST_PIXELS))
            small.save(path, quality=80)
        entries.append(
            {
                "image_id": picture.id,
                "width": picture.width,
                "boxes": [[*box.corners, box.label] for box in picture.boxes if not box.is_crowd],
            }
        )
    categories = [number for number, _ in data.categories]
    content = {"identity": identity, "classes": list(data.classes), "categories": categories, "images": entries}
    write_file(SAMPLES, directory, content)


def drawn(path: Path, original_width: int, boxes: Sequence[Sequence[Any]]) -> str:
    """Return an image with boxes in the colours of their classes.

    Args:
        path: The image.
        original_width: Width of the image that the boxes refer to.
        boxes: x1, y1, x2, y2 and label of each box.

    Returns:
        A data URL.
    """
    library, draw = import_module("PIL.Image"), import_module("PIL.ImageDraw")
    with library.open(path) as image:
        picture = image.convert("RGB")
    factor = picture.width / original_width
    pen = draw.Draw(picture)
    for left, top, right, bottom, label in boxes:
        corners = [value * factor for value in (left, top, max(left, right), max(top, bottom))]
        pen.rectangle(corners, outline=class_colour(label), width=2)
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def class_colour(label: int) -> str:
    """Return the colour of a class.

    Args:
        label: Number of the class, counted from 1.

    Returns:
        The colour as hexadecimal RGB.
    """
    return _COLOURS[(label - 1) % len(_COLOURS)]
