"""What the tests of runs share: a tiny network in a file, a recipe of a few steps, and runs of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from cafenet.cli.main import main
from cafenet.common.seals import SEAL, sealed
from cafenet.runs.recipe_files import load_recipe
from cafenet.runs.run_recipe import Step, run_recipe

# On 28x28: 8 filters of 9 weights at 49 places, 12 of 8*9 at 9 places, 12*10: 3,528 + 7,776 + 120 = 11,424 FLOPs.
NET_FILE = """
from torch import nn


def build(num_classes=10, in_channels=1):
    return nn.Sequential(
        nn.Conv2d(in_channels, 8, 3, stride=4, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 12, 3, stride=2, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, num_classes),
    )
"""
FULL_FLOPS = 11_424
ORIGINAL, UNIFORM, FIXED, OURS = "Original", "Uniform", "Fixed sharing", "CafeNet-E"


def recipe_file(place: Path, **sections: Any) -> Path:
    """A recipe of 4 steps a training and 8 scored widths, with its network beside it."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "net.py").write_text(NET_FILE)
    training = {"epochs": 1, "batch_size": 32, "optimizer": {"lr": 0.1}, "log_every": 1, "checkpoint_every": 2}
    content = {
        "description": "a tiny run",
        "model": {"name": f"{place}/net.py:build", "input_size": [1, 28, 28]},
        "data": {"source": "fashion", "num_train": 150},
        "supernet": {"r": 1},
        "train": training,
        "sampling": {"full_share": 0.0},
        "budget": "50%",
        "algorithms": ["evolution"],
        "evolution": {"population": 4, "iterations": 2},
        "scoring": {"calibration_size": 64, "batch_size": 32},
        "num_finalists": 2,
        "latency": {"repeats": 2, "warmup": 0},
        "finetune": training,
        **sections,
    }
    path = place / "tiny.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def run(recipe: Path, output: Path, *flags: str, step: Step = "evaluate") -> dict[str, Any]:
    """Run the recipe up to a step, as the command does but for the report; returns results.json, if there is one."""
    run_recipe(load_recipe(str(recipe), flags), output, until=step, quiet=True)
    results = output / "results.json"
    return json.loads(results.read_text()) if results.exists() else {}


def note(directory: Path, **values: Any) -> None:
    """Change values of a run's manifest."""
    path = directory / "manifest.json"
    path.write_text(json.dumps(sealed({**json.loads(path.read_text()), **values})))


def without_latency(results: dict[str, Any]) -> dict[str, Any]:
    """Results without what the clock decides."""
    rows = [{key: value for key, value in row.items() if not key.startswith("latency")} for row in results["rows"]]
    return {key: value for key, value in results.items() if key != SEAL} | {"rows": rows}


def row(results: dict[str, Any], method: str, budget: str = "50%") -> dict[str, Any]:
    """The one row of a method at a budget."""
    (found,) = [each for each in results["rows"] if (each["method"], each["budget"]) == (method, budget)]
    return found


def contents(directory: Path, *patterns: str) -> dict[str, tuple[int, bytes]]:
    """Time of writing and content of files, by their names."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes())
        for pattern in patterns
        for path in directory.rglob(pattern)
        if path.is_file()
    }


def num_steps(directory: Path) -> int:
    """Training steps that were logged in a directory."""
    return len((directory / "log.jsonl").read_text().splitlines())


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a mistake ends in."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("error: ")
    assert captured.out == ""
    return line


def picture_folder(root: Path, num_images: int = 12, size: tuple[int, int] = (12, 12)) -> Path:
    """Noise images in the layout of ImageNet: two classes, a training and a test part."""
    rng = np.random.default_rng(0)
    for part in ("train", "val"):
        for number in range(2 * num_images):
            path = root / part / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(256, size=(*size, 3), dtype=np.uint8)).save(path)
    return root


def faces_folder(root: Path, num_images: int = 60) -> Path:
    """Images with three attributes, as a CSV table beside a directory: the first is how bright an image is."""
    rng = np.random.default_rng(0)
    lines = ["image,bright,young,hat"]
    (root / "images").mkdir(parents=True)
    for number in range(num_images):
        pixels = rng.integers(128, size=(12, 12, 3), dtype=np.uint8) + np.uint8(127 * (number % 2))
        Image.fromarray(pixels).save(root / "images" / f"{number}.png")
        lines.append(f"{number}.png,{number % 2},{number // 2 % 2},{int(number % 5 == 0)}")
    (root / "attributes.csv").write_text("\n".join(lines) + "\n")
    return root
