"""What the tests of detection share: tiny pictures with coloured squares in COCO's format, and a tiny backbone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image
from torch import nn

import cafenet
from cafenet.detection import CocoData, DetectorConfig, Pictures, Scaling, read_coco
from cafenet.pipeline.entries import Entry, write_entries

SIZE = (64, 48)
"""Width and height of every picture."""
CATEGORIES = [{"id": 3, "name": "red"}, {"id": 7, "name": "blue"}]
SMALL = DetectorConfig(
    strides=(4, 8),
    extra_levels=False,
    fpn_channels=16,
    head_depth=1,
    head_width=32,
    frozen_norms=False,
    min_size=48,
    max_size=64,
    anchor_scale=3,
    anchor_octaves=1,
    anchor_ratios=(1.0,),
    proposals=40,
    regions=16,
    roi_canonical_size=32,
)
NET_FILE = """
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8, first_stride=2):
        super().__init__()
        def layer(before, after, stride):
            return nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU())
        self.features = nn.Sequential(
            layer(3, width, first_stride), layer(width, width, 2), layer(width, 2 * width, 1),
            layer(2 * width, 3 * width, 2), layer(3 * width, 4 * width, 1),
        )
        self.classifier = nn.Linear(4 * width, 2)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))
"""


def tiny_net(**options: Any) -> nn.Module:
    """Five convolutions with strides up to 8: 8, 8, 16, 24 and 32 channels."""
    namespace: dict[str, Any] = {}
    exec(NET_FILE, namespace)
    net: nn.Module = namespace["Net"](**options)
    return net


def document(num_images: int = 6) -> dict[str, Any]:
    """Two squares of 16x16 and 12x12 pixels in every picture."""
    rng = np.random.default_rng(0)
    images, annotations = [], []
    for number in range(num_images):
        images.append({"id": number + 10, "file_name": f"{number}.png", "width": SIZE[0], "height": SIZE[1]})
        for category, side, left in ((3, 16, 0), (7, 12, 32)):
            x, y = left + int(rng.integers(0, 32 - side)), int(rng.integers(0, SIZE[1] - side))
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number + 10,
                    "category_id": category,
                    "bbox": [x, y, side, side],
                    "area": side * side,
                    "iscrowd": 0,
                }
            )
    return {"images": images, "annotations": annotations, "categories": CATEGORIES}


def write_cells(place: Path, content: dict[str, Any] | None = None, name: str = "cells.json") -> Path:
    """The JSON, and beside it the pictures that it lists."""
    content = document() if content is None else content
    (place / "images").mkdir(parents=True, exist_ok=True)
    for image in content.get("images", []):
        pixels = np.full((SIZE[1], SIZE[0], 3), 40, dtype=np.uint8)
        for each in content.get("annotations", []):
            if each.get("image_id") == image["id"] and each.get("category_id") in (3, 7):
                x, y, width, height = (int(value) for value in each["bbox"])
                colour = (220, 0, 0) if each["category_id"] == 3 else (0, 0, 220)
                pixels[max(y, 0) : y + height, max(x, 0) : x + width] = colour
        Image.fromarray(pixels).save(place / "images" / image["file_name"])
    path = place / name
    path.write_text(json.dumps(content))
    return path


def cells(place: Path, num_images: int = 6) -> CocoData:
    return read_coco(write_cells(place, document(num_images)), place / "images")


def pictures(place: Path, num_images: int = 6, *, flip: bool = False) -> Pictures:
    return Pictures(cells(place, num_images), Scaling(SMALL.min_size, SMALL.max_size), flip=flip)


def slim(model: nn.Module, size: tuple[int, int]) -> nn.Module:
    """The model with about half of every group's channels, trained or not."""
    space = cafenet.trace(model, torch.zeros(1, 3, *size))
    return space.extract({group.name: group.channels // 2 for group in space.groups})


def finished_run(place: Path, seeds: tuple[int, ...] = (0, 1)) -> Path:
    """A directory as `cafenet run` leaves it: the whole network, one of half its widths, and one of 3/4."""
    (place / "net.py").write_text(NET_FILE)
    run = place / "run"
    run.mkdir()
    recipe = {"description": "two colours", "model": {"name": f"{place}/net.py:Net", "options": {"width": 8}}}
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    entries = [Entry("Original", "", None), Entry("Uniform", "50%", {}), Entry("CafeNet-E", "50%", {})]
    write_entries(entries, {}, run)
    for seed in seeds:
        torch.manual_seed(seed)
        model = tiny_net()
        space = cafenet.trace(model, torch.zeros(1, 3, 32, 32))
        for entry, share in zip(entries, (1.0, 0.5, 0.75), strict=True):
            target = run / "models" / entry.key / f"seed-{seed}"
            target.mkdir(parents=True)
            widths = {group.name: int(group.channels * share) for group in space.groups}
            cafenet.save(space.extract(widths), target / "slim.pt")
    return run
