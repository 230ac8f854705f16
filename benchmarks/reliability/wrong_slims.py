"""Wrong command lines of `cafenet slim`, and the networks, weights and data that they name.

`{slim}` is a directory with networks (`net.py`), files of weights and data; `{place}` that of a tiny run, `{run}` the
finished run itself. Whatever these files hold is made by `write`.
"""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.reliability.jobs import NET_FILE

NO_WEIGHTS = "--data npz:{slim}/data --output out --quiet --effort quick --batch-size 16"
GIVEN = f"slim {{slim}}/net.py:build --weights {{slim}}/net.pt {NO_WEIGHTS}"

NETS = """
import torch


def needs(width):
    return build()


def raises():
    raise ValueError("no network today")


def nothing():
    return None


def a_class_of_nothing():
    return nn.Module


def only_one_layer():
    return nn.Sequential(nn.Flatten(), nn.Linear(144, 4))


def no_parameters():
    return nn.Sequential(nn.Flatten(), nn.Softmax(1))


def on_meta():
    return build().to("meta")


def lazy():
    return nn.Sequential(nn.LazyConv2d(8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = build()

    def forward(self, x):
        return self.change(self.body(x))

    def change(self, x):
        return x


class Exits(Wrapped):
    def change(self, x):
        raise SystemExit(7)


class Raises(Wrapped):
    def change(self, x):
        raise RuntimeError("no forward today")


class ReturnsNothing(Wrapped):
    def change(self, x):
        return None


class ReturnsADict(Wrapped):
    def change(self, x):
        return {"a": x, "b": x}


class ReturnsTwo(Wrapped):
    def change(self, x):
        return x, x


class ReturnsOneNumber(Wrapped):
    def change(self, x):
        return x.mean()


class ReturnsNan(Wrapped):
    def change(self, x):
        return x * float("nan")


class NoGradients(Wrapped):
    def change(self, x):
        return x.detach()


class ReturnsAnImage(Wrapped):
    def change(self, x):
        return x[:, :, None, None].expand(-1, -1, 3, 3)


class TwoInputs(Wrapped):
    def forward(self, x, y):
        return self.body(x + y)


class ChangesItsInput(Wrapped):
    def forward(self, x):
        return self.body(x.add_(1))


class NoForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = build()
"""
"""Networks that a user may have written, beside `build` of the tiny run."""


def _saved(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


class _Runs:
    """A pickle that would run a command."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch pwned",)


def _weights() -> dict[str, Any]:
    """The files of weights, by name; each but `net.pt` is wrong."""
    namespace: dict[str, Any] = {}
    exec(NET_FILE, namespace)
    torch.manual_seed(0)
    model = namespace["build"]()
    state: dict[str, Tensor] = dict(model.state_dict())
    first = "0.weight"
    changed: dict[str, Any] = {
        "number": 3,
        "none": None,
        "list": [1.0, 2.0],
        "short": state[first][:4],
        "nan": state[first] * float("nan"),
        "inf": state[first] / 0,
        "complex": state[first].to(torch.complex64),
        "ints": state[first].long(),
        "meta": state[first].to("meta"),
        "sparse": state[first].to_sparse(),
        "quantized": torch.quantize_per_tensor(state[first], 0.1, 0, torch.qint8),
    }
    files: dict[str, Any] = {f"{name}.pt": {**state, first: value} for name, value in changed.items()}
    return files | {
        "net.pt": state,
        "whole.pt": model,
        "runs.pt": {**state, first: _Runs()},
        "tensor.pt": state[first],
        "empty_dict.pt": {},
        "empty_state.pt": {"state_dict": {}},
        "epochs.pt": {"state_dict": 3, "epoch": 4},
        "keys.pt": {3: state[first], None: state[first], ("a", "b"): 1},
        "missing.pt": {name: value for name, value in state.items() if name != first},
        "extra.pt": {**state, "head.weight": state[first]},
        "nan_statistics.pt": {**state, "1.running_var": state["1.running_var"] * float("nan")},
        "negative_statistics.pt": {**state, "1.running_var": -state["1.running_var"]},
    }


def _data() -> dict[str, tuple[Any, Any]]:
    """Images and labels of training data, by the name of their directory; each but `data` is wrong."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (128, 12, 12)).astype(np.uint8)
    labels = np.arange(128) % 4
    return {
        "data": (images, labels),
        "colours": (np.repeat(images[..., None], 3, axis=3), labels),
        "more_classes": (images, np.arange(128) % 9),
        "negative": (images, labels - 1),
        "fractions": (images, labels + 0.5),
        "words": (images, np.array([f"class {label}" for label in labels])),
        "two_labels": (images, np.stack([labels, labels], 1)),
        "fewer_labels": (images, labels[:100]),
        "no_examples": (images[:0], labels[:0]),
        "one_example": (images[:1], labels[:1]),
        "tiny": (images[:, :1, :1], labels),
        "no_height": (images[:, :0], labels),
        "flat": (images.reshape(128, 144), labels),
        "floats": (images * np.nan, labels),
        "objects": (np.array([{"a": 1}] * 128, dtype=object), labels),
    }


def write(place: Path) -> None:
    """Write networks, weights and data into a directory."""
    place.mkdir(parents=True)
    (place / "net.py").write_text(NET_FILE + NETS)
    for name, content in _weights().items():
        (place / name).write_bytes(_saved(content))
    good = (place / "net.pt").read_bytes()
    (place / "cut.pt").write_bytes(good[: len(good) // 2])
    (place / "empty.pt").write_bytes(b"")
    (place / "noise.pt").write_bytes(bytes(range(256)) * 20)
    data = _data()
    for name, (images, labels) in data.items():
        (place / name).mkdir()
        np.savez(place / name / "train.npz", images=images, labels=labels)
        np.savez(place / name / "test.npz", images=images[:32], labels=labels[:32])
    _write_mixed(place, data)
    _write_folders(place)


def _write_mixed(place: Path, data: dict[str, tuple[Any, Any]]) -> None:
    """Write data whose test part does not fit to the training part."""
    mixed = {"test_colours": "colours", "test_more_classes": "more_classes", "test_empty": "no_examples"}
    for name, other in {**mixed, "test_tiny": "tiny"}.items():
        (place / name).mkdir()
        for part, (images, labels) in (("train", data["data"]), ("test", data[other])):
            np.savez(place / name / f"{part}.npz", images=images, labels=labels)
    (place / "no_test").mkdir()
    np.savez(place / "no_test" / "train.npz", images=data["data"][0], labels=data["data"][1])


def _write_folders(place: Path) -> None:
    """Write folders of images that cannot be used."""
    for name in ("empty_folder", "no_images/train/a", "no_images/val/a", "broken_images/train/a"):
        (place / name).mkdir(parents=True)
    (place / "no_images" / "train" / "a" / "words.txt").write_text("no image")
    for part in ("train", "val"):
        for label in ("a", "b"):
            (place / "broken_images" / part / label).mkdir(parents=True, exist_ok=True)
            for number in range(8):
                (place / "broken_images" / part / label / f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n noise")


_MODELS = [
    "absent",
    "''",
    ":",
    "torchvision:absent",
    "torchvision:resnet18",
    "cafenet:absent",
    "hf:absent",
    "hf:bert",
    "hf:/dev/null",
    "os:getcwd",
    "{slim}/absent.py:build",
    "{slim}/net.pt:build",
    "{slim}/net.py",
    "{slim}/net.py:absent",
    *(
        f"{{slim}}/net.py:{name}"
        for name in (
            "needs",
            "raises",
            "nothing",
            "a_class_of_nothing",
            "only_one_layer",
            "no_parameters",
            "on_meta",
            "lazy",
            "ReturnsNothing",
            "ReturnsADict",
            "ReturnsOneNumber",
            "NoGradients",
            "ReturnsAnImage",
            "TwoInputs",
            "NoForward",
            "ReturnsNan",
        )
    ),
]
_BUDGETS = [
    "0%",
    "-5%",
    "100%",
    "101%",
    "1%",
    "nan%",
    "inf",
    "50",
    "half",
    "''",
    "50%,25%",
    "50%+",
    "0.0001ms",
    "3wings",
]
_NO_FILES = ["absent.pt", "''", ".", "/dev/null", "{slim}", "{slim}/net.py"]
_OUTPUTS = ["''", "/dev/null", "/proc/cafenet", "/dev/null/out", "{slim}/net.py", "{run}", "x" * 5000]
_SOURCES = ["absent", "npz:", "npz:absent", "npz:/dev/null", "npz:{slim}", "folder:absent", "cifar10:{slim}", "''"]
_NUMBERS = {"--batch-size": ["0", "-1", "1.5", "many", "''", "100000"], "--seed": ["-1", "1.5", "many", f"{2**70}"]}

LINES = [
    "slim",
    "slim {slim}/net.py:build",
    f"slim {{slim}}/net.py:build {NO_WEIGHTS} --absent",
    *(f"slim {model} {NO_WEIGHTS}" for model in _MODELS),
    *(f"{GIVEN} --weights {name}" for name in _NO_FILES),
    *(f"{GIVEN} --weights {{slim}}/{name}" for name in ("cut.pt", "empty.pt", "noise.pt")),
    *(f"{GIVEN} --weights {{slim}}/{name}" for name in _weights() if name != "net.pt"),
    *(f"{GIVEN} --budget={budget}" for budget in _BUDGETS),
    *(f"{GIVEN} --data {source}" for source in _SOURCES),
    *(f"{GIVEN} --data npz:{{slim}}/{name}" for name in _data() if name != "data"),
    *(f"{GIVEN} --data npz:{{slim}}/{name}" for name in ("test_colours", "test_more_classes", "test_empty")),
    *(f"{GIVEN} --data npz:{{slim}}/{name}" for name in ("test_tiny", "no_test")),
    *(f"{GIVEN} --data folder:{{slim}}/{name}" for name in ("empty_folder", "no_images", "broken_images", "data")),
    *(f"{GIVEN} --output {output}" for output in _OUTPUTS),
    *(f"{GIVEN} {flag}={value}" for flag, values in _NUMBERS.items() for value in values),
    f"{GIVEN} --effort heroic",
    f"{GIVEN} --effort ''",
]
"""Each must end with exit code 2 and one line."""
