"""Two small networks trained on CIFAR-10, exported in float and in int8 to three formats, read back and run.

    python -m benchmarks.quantised               # goes on where it was stopped
    python -m benchmarks.quantised --fresh

The first 8,000 training images at 16x16 train a CNN and a vision transformer for a few epochs, which is far from their
best but enough to see what rounding costs. Files take one image. Accuracy is that of the files themselves, run in their
runtimes on the first 1,000 test images; ranges of int8 come from training images. Latency is the
median of 200 passes of one image in one thread.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy
from torch.utils.data import TensorDataset

import cafenet
from benchmarks.common.places import CIFAR, kept_results, page_of
from benchmarks.common.results_file import Results
from benchmarks.quantised.page import FORMATS, markdown
from cafenet.errors import CafeNetError
from cafenet.runtimes.file_model import FileModel
from cafenet.searching.latency.measure import LatencyConfig, measure_latencies

NUM_TRAIN, NUM_TEST, BATCH = 8000, 1000, 100
_ENDINGS = {"onnxruntime": ".onnx", "openvino": ".xml", "executorch": ".pte"}
_MEAN, _STD = 120.0, 64.0


class Transformer(nn.Module):
    """A vision transformer of 16 patches, 4 blocks and 64 features."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 64, 4, 4)
        self.positions = nn.Parameter(torch.zeros(1, 16, 64))
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "before": nn.LayerNorm(64),
                    "qkv": nn.Linear(64, 192),
                    "out": nn.Linear(64, 64),
                    "between": nn.LayerNorm(64),
                    "up": nn.Linear(64, 128),
                    "down": nn.Linear(128, 64),
                }
            )
            for _ in range(4)
        )
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images of 16x16."""
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            q, k, v = block["qkv"](block["before"](x)).unflatten(2, (3, 4, 16)).permute(2, 0, 3, 1, 4)
            mixed = ((q @ k.transpose(2, 3)) / 4).softmax(3) @ v
            x = x + block["out"](mixed.transpose(1, 2).flatten(2))
            x = x + block["down"](nn.functional.gelu(block["up"](block["between"](x))))
        return self.head(self.norm(x.mean(1)))


def convolutions() -> nn.Module:
    """A CNN of five convolutions with batch norm."""
    layers: list[nn.Module] = []
    for before, after, stride in ((3, 32, 1), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2)):
        layers += [nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


NETWORKS = {"CNN": (convolutions, 5), "Vision transformer": (Transformer, 10)}
"""Networks with their numbers of epochs."""


def images(name: str, number: int) -> TensorDataset:
    """The first images of a part of CIFAR-10 at 16x16, with their labels."""
    with np.load(CIFAR / f"{name}.npz") as file:
        pixels, labels = file["images"][:number], file["labels"][:number]
    small = avg_pool2d(torch.from_numpy(pixels).permute(0, 3, 1, 2).float(), 2)
    return TensorDataset((small - _MEAN) / _STD, torch.from_numpy(labels).long())


def trained(network: str, data: TensorDataset) -> nn.Module:
    """A network trained with a one-cycle rate and seed 0."""
    torch.manual_seed(0)
    build, epochs = NETWORKS[network]
    model, (x, y) = build().train(), data.tensors
    steps = epochs * (len(x) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.02)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps)
    for step in range(steps):
        chosen = torch.randint(len(x), (BATCH,))
        flipped = x[chosen].flip(3) if step % 2 else x[chosen]
        cross_entropy(model(flipped), y[chosen]).backward()
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
    return model.eval()


def file_of(
    model: nn.Module, runtime: str, quantize: Any, train: TensorDataset, test: TensorDataset, place: Path
) -> dict[str, Any]:
    """The size and accuracy of a file that was read back, and its difference from the model."""
    path = place / f"model{_ENDINGS[runtime]}"
    image, calibration = train.tensors[0][:1], train if quantize else None
    difference = cafenet.export(model, image, path, fixed_batch=True, quantize=quantize, calibration=calibration)
    size = sum(each.stat().st_size for each in place.iterdir())
    accuracy = cafenet.evaluate(FileModel(path, batch_size=1), test)["accuracy"]
    return {"difference": difference, "bytes": size, "accuracy": accuracy}


def measured(model: nn.Module, runtime: str, train: TensorDataset, test: TensorDataset) -> dict[str, Any]:
    """The float and the int8 file of a network in one runtime."""
    found: dict[str, Any] = {}
    for name, quantize in (("float", None), ("int8", "int8")):
        with tempfile.TemporaryDirectory() as place:
            found[name] = file_of(model, runtime, quantize, train, test, Path(place))
        settings = LatencyConfig(runtime=runtime, repeats=200, quantize=quantize)  # type: ignore[arg-type]
        found[name]["ms"] = measure_latencies([model], train.tensors[0][:1], settings)[0].median
    return found


def main() -> None:
    """Measure what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--output", type=Path, default=kept_results("quantised"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(options.output, fresh=options.fresh)
    train, test = images("train", NUM_TRAIN), images("test", NUM_TEST)
    for network in NETWORKS:
        missing = [name for name in FORMATS if f"{network} {name}" not in results.rows("files")]
        model = trained(network, train) if missing else nn.Identity()
        for runtime in missing:
            print(network, runtime, flush=True)
            results.add("accuracy", network, cafenet.evaluate(model, test)["accuracy"])
            try:
                row = measured(model, runtime, train, test)
            except CafeNetError as error:  # a runtime that is missing, or lacks an operator
                row = {"problem": str(error)}
            results.add("files", f"{network} {runtime}", row)
            print(row, flush=True)
    page_of("quantised", options.output).write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    main()
