"""The smallest whole jobs: a search in two stages, a run with all baselines, and a comparison of two backbones.

They use the public API and the command line alone, so that they also run on earlier revisions of the package.
"""

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

import cafenet
from cafenet.cli.main import main as cafenet_command

GREY_NETWORK = """
from torch import nn


def build():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=4, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 12, 3, stride=2, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10),
    )
"""
TRAINING = {"epochs": 1, "batch_size": 32}
RECIPE: dict[str, Any] = {
    "data": {"source": "fashion", "num_train": 150},
    "supernet": {"r": 1},
    "train": TRAINING,
    "budget": "50%",
    "algorithms": ["evolution"],
    "evolution": {"population": 4, "iterations": 2},
    "scoring": {"calibration_size": 64, "batch_size": 32},
    "baselines": {"random_widths": 2, "random_epochs": 1},
    "latency": {"repeats": 2, "warmup": 0},
    "finetune": {**TRAINING, "seeds": [0, 1]},
}
"""Every baseline, and two final models of each method."""

COLOUR_NETWORK = """
from torch import nn


def layer(before, after, stride):
    return nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(layer(3, 8, 2), layer(8, 8, 2), layer(8, 16, 1), layer(16, 24, 2))
        self.classifier = nn.Linear(24, 2)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))
"""
DETECTOR = {
    "framework": "retinanet",
    "strides": [4, 8],
    "extra_levels": False,
    "fpn_channels": 16,
    "head_depth": 1,
    "frozen_norms": False,
    "min_size": 48,
    "max_size": 64,
    "anchor_scale": 3,
    "anchor_octaves": 1,
    "anchor_ratios": [1.0],
}
"""The framework around both backbones."""


def tiny_search(directory: Path) -> cafenet.SearchResult:
    """A search in two stages whose slim model is trained; Uniform, which may have the same widths, is left out."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 12, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))
    data = TensorDataset(torch.randn(64, 3, 6, 6), torch.arange(64) % 4)
    options = cafenet.SearchOptions(
        algorithm=cafenet.RandomSearch(samples=4), stages=cafenet.StagesConfig(num_stages=2, carry_weights=True)
    )
    training = cafenet.TrainConfig(epochs=1, batch_size=16)
    result = cafenet.search(
        model,
        data,
        data,
        budget="50%",
        train=training,
        finetune=training,
        options=options,
        baseline=False,
        directory=directory,
        quiet=True,
    )
    assert isinstance(result, cafenet.SearchResult)
    return result


def tiny_run(directory: Path) -> None:
    """The command `cafenet run` with all baselines, from the recipe to the report."""
    (directory / "net.py").write_text(GREY_NETWORK)
    model = {"name": f"{directory}/net.py:build", "input_size": [1, 28, 28]}
    (directory / "tiny.yaml").write_text(yaml.safe_dump({"model": model, **RECIPE}))
    _command("run", directory)


def tiny_detection(directory: Path) -> None:
    """The command `cafenet detect` on a network and on half of it, with pictures of one square each."""
    network = directory / "net.py"
    network.write_text(COLOUR_NETWORK)
    torch.manual_seed(0)
    model = cafenet.load_model(f"{network}:Net")
    space = cafenet.trace(model, torch.zeros(1, 3, 48, 64))
    cafenet.save(space.extract({group.name: group.channels // 2 for group in space.groups}), directory / "half.pt")
    _write_squares(directory)
    files = [{"name": name, "model": f"{network}:Net"} for name in ("whole", "half")]
    files[1]["weights"] = str(directory / "half.pt")
    recipe = {
        "backbones": {"files": files, "pretraining": "none"},
        "data": {"images": str(directory), "train": str(directory / "squares.json"), "test_share": 0.34},
        "detector": DETECTOR,
        "train": {"epochs": 1, "batch_size": 2},
        "samples": 1,
    }
    (directory / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    _command("detect", directory)


def _write_squares(directory: Path, num_images: int = 6) -> None:
    """Write grey pictures with a red square of 16 x 16 pixels, and their boxes in COCO's format."""
    images, boxes = [], []
    for number in range(num_images):
        x, y = 8 * number, 4 * number
        pixels = np.full((48, 64, 3), 40, dtype=np.uint8)
        pixels[y : y + 16, x : x + 16] = (220, 0, 0)
        Image.fromarray(pixels).save(directory / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "width": 64, "height": 48})
        box = {"bbox": [x, y, 16, 16], "area": 256, "category_id": 1, "iscrowd": 0}
        boxes.append({"id": number + 1, "image_id": number, **box})
    content = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "square"}]}
    (directory / "squares.json").write_text(json.dumps(content))


def _command(name: str, directory: Path) -> None:
    """Run `cafenet run` or `cafenet detect` on the recipe in a directory, without what it prints."""
    command = [name, str(directory / "tiny.yaml"), "--output", str(directory / name), "--quiet"]
    with redirect_stdout(StringIO()):  # the table and the path of the report
        code = cafenet_command(command)
    assert code == 0, f"{' '.join(command)} ended with {code}"
