"""Tiny jobs of a few seconds on made-up data: `cafenet run`, `cafenet.search`, `cafenet slim` and `cafenet detect`.

Each has a function that does it in a directory, and `results_of` that reads what it came to: a dictionary of what must
be equal, to the last bit, whenever the job is interrupted and started again.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image
from torch import Tensor
from torch.utils.data import TensorDataset

import cafenet
from cafenet.cli.main import main
from cafenet.common.run_places import JOURNAL
from cafenet.pipeline.entries import Entry, write_entries
from cafenet.report.trials import read_trials

SIZE, NUM_CLASSES = 12, 4
NET_FILE = """
from torch import nn


def build(num_classes=4):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 12, 3, stride=2, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, num_classes),
    )


class Backbone(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        def layer(before, after, stride):
            return nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU())
        self.features = nn.Sequential(layer(3, width, 2), layer(width, width, 2), layer(width, 2 * width, 2))
        self.classifier = nn.Linear(2 * width, 2)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))
"""
TRAINING = {"epochs": 2, "batch_size": 16, "optimizer": {"lr": 0.1}, "log_every": 1, "checkpoint_every": 2}
SEARCH = {
    "budget": "50%",
    "algorithms": ["evolution"],
    "evolution": {"population": 4, "iterations": 2},
    "scoring": {"calibration_size": 32, "batch_size": 32},
    "num_finalists": 2,
    "latency": {"repeats": 2, "warmup": 0},
}
DETECTOR = {
    "framework": "retinanet",
    "strides": [4, 8],
    "extra_levels": False,
    "fpn_channels": 8,
    "head_depth": 1,
    "head_width": 16,
    "frozen_norms": False,
    "min_size": 48,
    "max_size": 64,
    "anchor_scale": 3,
    "anchor_octaves": 1,
    "anchor_ratios": [1.0],
}
BY_THE_CLOCK = {
    "latency_ms",
    "latency_quartiles_ms",
    "latency_range_ms",
    "seconds",
    "started",
    "finished",
    "stopped",
    "command",
    "time",
    "wall_seconds",
    "ms",
    "digest",
}
"""Keys of JSON files whose values differ from one start to the next."""


TABLES = (
    "results.json",
    "entries.json",
    "evaluation.json",
    "detections.json",
    "stages.json",
    "gain.json",
    "trained.json",
)


@dataclass(frozen=True)
class Job:
    """One kind of job."""

    name: str
    prepare: Callable[[Path], None]
    """Writes data, networks and recipes into a directory."""
    work: Callable[[Path, Path], Any]
    """Does the job of the first directory in the second one, or goes on with it; returns an exit code or None."""
    command: str
    """The command that a user would type."""


def prepare_run(place: Path) -> None:
    """A recipe, its network, and 128 + 32 grey images of four classes that a network can tell apart."""
    _write_net(place)
    rng = np.random.default_rng(0)
    for part, count in (("train", 128), ("test", 32)):
        labels = np.arange(count) % NUM_CLASSES
        images = rng.integers(0, 120, size=(count, SIZE, SIZE)).astype(np.uint8)
        for number, label in enumerate(labels):
            images[number, 3 * label : 3 * label + 3] += 120
        np.savez(place / f"{part}.npz", images=images, labels=labels)
    recipe = {
        "description": "a tiny run",
        "model": {"name": f"{place}/net.py:build", "input_size": [1, SIZE, SIZE]},
        "data": {"source": f"npz:{place}"},
        "supernet": {"r": 1},
        "train": TRAINING,
        **SEARCH,
        "finetune": TRAINING,
        "baselines": {"fixed": False},
    }
    (place / "tiny.yaml").write_text(yaml.safe_dump(recipe))


def run_command(place: Path, out: Path) -> int:
    """`cafenet run`."""
    return main(["run", str(place / "tiny.yaml"), "--output", str(out), "--quiet"])


def call_search(place: Path, out: Path) -> int:
    """`cafenet.search`; an error that is meant for the user is one line and code 2, as a command would show it."""
    try:
        _search(place, out)
    except cafenet.CafeNetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _search(place: Path, out: Path) -> None:
    """A search with its defaults for stages, and a final training; what it returns is kept beside the directory."""
    data = np.load(place / "train.npz")
    images = torch.from_numpy(data["images"]).float().div(255).unsqueeze(1)
    labels = torch.from_numpy(data["labels"]).long()
    training = cafenet.TrainConfig(
        epochs=4, batch_size=16, optimizer=cafenet.OptimizerConfig(lr=0.1), checkpoint_every=2, log_every=1
    )
    result = cafenet.search(
        _built(place),
        TensorDataset(images[:96], labels[:96]),
        TensorDataset(images[96:], labels[96:]),
        "40%",
        train=training,
        finetune=training,
        options=cafenet.SearchOptions(
            algorithm=cafenet.Evolution(population=6, iterations=3),
            num_finalists=2,
            scoring=cafenet.ScoringConfig(calibration_size=32, batch_size=32),
        ),
        example_inputs=images[:1],
        directory=out,
        quiet=True,
    )
    digest = {"model": digest_of(result.model.state_dict()), "result": _timeless(_jsonable(vars(result.found)))}
    returned_by(out).write_text(json.dumps(digest, default=repr))


def _built(place: Path) -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return cafenet.load_model(f"{place}/net.py:build", num_classes=NUM_CLASSES)


def prepare_detect(place: Path) -> None:
    """The directory of a run with two trained backbones, and nine pictures with a red and a blue square each."""
    _write_net(place)
    _write_backbones(place)
    _write_pictures(place)
    recipe = {
        "description": "tiny squares",
        "seeds": [0],
        "backbones": {"run": f"{place}/backbones"},
        "data": {"images": f"{place}/images", "train": f"{place}/squares.json", "test_share": 0.34},
        "detector": DETECTOR,
        "train": {"epochs": 4, "batch_size": 3, "log_every": 1, "checkpoint_every": 2},
        "samples": 1,
    }
    (place / "tiny.yaml").write_text(yaml.safe_dump(recipe))


def detect_command(place: Path, out: Path) -> int:
    """`cafenet detect`."""
    return main(["detect", str(place / "tiny.yaml"), "--output", str(out), "--quiet"])


def prepare_slim(place: Path) -> None:
    """The network and data of a run, and weights that the network was trained to."""
    prepare_run(place)
    data = np.load(place / "train.npz")
    images = torch.from_numpy(data["images"]).float().sub(127).div(60).unsqueeze(1)
    examples = TensorDataset(images, torch.from_numpy(data["labels"]).long())
    training = cafenet.TrainConfig(epochs=12, batch_size=16, optimizer=cafenet.OptimizerConfig(lr=0.1))
    trained = cafenet.train_model(_built(place), images[:1], examples, training, quiet=True)
    torch.save(trained.state_dict(), place / "net.pt")


def slim_command(place: Path, out: Path) -> int:
    """`cafenet slim` of a trained network."""
    given = [f"{place}/net.py:build", "--weights", f"{place}/net.pt", "--data", f"npz:{place}", "--output", str(out)]
    return main(["slim", *given, "--effort", "quick", "--batch-size", "16", "--budget", "60%", "--quiet"])


JOBS = {
    "run": Job("run", prepare_run, run_command, "cafenet run tiny.yaml"),
    "search": Job("search", prepare_run, call_search, "cafenet.search(...)"),
    "slim": Job("slim", prepare_slim, slim_command, "cafenet slim net.py:build"),
    "detect": Job("detect", prepare_detect, detect_command, "cafenet detect tiny.yaml"),
}


def returned_by(out: Path) -> Path:
    """The file in which a search that works in `out` writes down its result."""
    return out.with_name(f"{out.name}-returned.json")


def results_of(out: Path) -> dict[str, Any]:
    """All that a finished job came to: its tables, its scores, and a digest of the weights in each of its files."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        name = str(path.relative_to(out))
        if path.suffix == ".pt":
            found[name] = digest_of(_weights(torch.load(path, map_location="cpu", weights_only=True)))
        elif path.name in TABLES or path.name.startswith("result-"):
            found[name] = _timeless(json.loads(path.read_text()))
        elif path.name == JOURNAL:
            found[name] = sorted({f"{trial.widths} {trial.value!r}" for trial in read_trials(path)})
    returned = returned_by(out)
    return found | ({"returned": json.loads(returned.read_text())} if returned.exists() else {})


def end_of(out: Path) -> dict[str, Any]:
    """Results that a user takes away from a finished job: the table and the final models, or a search's result."""
    is_taken = ("returned", "results.json", "slim.pt", "detector.pt")
    return {name: value for name, value in results_of_readable(out).items() if name.rpartition("/")[2] in is_taken}


def results_of_readable(out: Path) -> dict[str, Any]:
    """Results of a job among files that may be unreadable: each of those counts as its error's name."""
    found: dict[str, Any] = {}
    for path in [*out.rglob("slim.pt"), *out.rglob("detector.pt"), out / "results.json", returned_by(out)]:
        name = "returned" if path == returned_by(out) else str(path.relative_to(out))
        try:
            if path.suffix == ".pt":
                found[name] = digest_of(_weights(torch.load(path, map_location="cpu", weights_only=True)))
            elif path.exists():
                found[name] = _timeless(json.loads(path.read_text()))
        except Exception as error:
            found[name] = type(error).__name__
    return found


def differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Names of the parts of two results that are not equal."""
    return sorted(name for name in {**before, **now} if before.get(name) != now.get(name))


def digest_of(content: Any) -> str:
    """A hash of nested values in which every bit of every tensor counts."""
    digest = hashlib.sha256()
    _feed(digest, content)
    return digest.hexdigest()[:16]


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype}{list(value.shape)}".encode())
        digest.update(value.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            digest.update(str(key).encode())
            _feed(digest, value[key])
    elif isinstance(value, (list, tuple)):
        for part in value:
            _feed(digest, part)
    else:
        digest.update(repr(value).encode())


def _weights(content: Any) -> Any:
    """The weights in a checkpoint or in a slim file, without what surrounds them."""
    kept = ("model", "tensors", "optimizer", "step", "widths", "channels")
    return {key: content[key] for key in kept if key in content} if isinstance(content, dict) else content


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(part) for key, part in value.items() if key not in BY_THE_CLOCK}
    return [_timeless(part) for part in value] if isinstance(value, list) else value


def _jsonable(value: Any) -> Any:
    return json.loads(json.dumps(value, default=repr))


def _write_net(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / "net.py").write_text(NET_FILE)


def _write_backbones(place: Path) -> None:
    """A directory as `cafenet run` leaves it: the whole network and one of half its widths."""
    run = place / "backbones"
    run.mkdir()
    recipe = {"description": "two colours", "model": {"name": f"{place}/net.py:Backbone", "options": {"width": 8}}}
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    entries = [Entry("Original", "", None), Entry("CafeNet-E", "50%", {})]
    write_entries(entries, {}, run)
    torch.manual_seed(0)
    space = cafenet.trace(cafenet.load_model(f"{place}/net.py:Backbone"), torch.zeros(1, 3, 32, 32))
    for entry, share in zip(entries, (1.0, 0.5), strict=True):
        target = run / "models" / entry.key / "seed-0"
        target.mkdir(parents=True)
        widths = {group.name: int(group.channels * share) for group in space.groups}
        cafenet.save(space.extract(widths), target / "slim.pt")


def _write_pictures(place: Path, num_images: int = 9) -> None:
    rng = np.random.default_rng(0)
    images: list[dict[str, Any]] = []
    boxes: list[dict[str, Any]] = []
    (place / "images").mkdir()
    for number in range(num_images):
        pixels = np.full((48, 64, 3), 40, dtype=np.uint8)
        images.append({"id": number, "file_name": f"{number}.png", "width": 64, "height": 48})
        for category, side, left in ((1, 16, 0), (2, 12, 32)):
            x, y = left + int(rng.integers(0, 32 - side)), int(rng.integers(0, 48 - side))
            pixels[y : y + side, x : x + side] = (220, 0, 0) if category == 1 else (0, 0, 220)
            box = {"image_id": number, "category_id": category, "bbox": [x, y, side, side], "area": side * side}
            boxes.append({"id": len(boxes) + 1, "iscrowd": 0, **box})
        Image.fromarray(pixels).save(place / "images" / f"{number}.png")
    categories = [{"id": 1, "name": "red"}, {"id": 2, "name": "blue"}]
    content = {"images": images, "annotations": boxes, "categories": categories}
    (place / "squares.json").write_text(json.dumps(content))
