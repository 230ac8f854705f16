"""The measurements of one network in one runtime."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cafenet
from cafenet.errors import CafeNetError
from cafenet.models import load_model
from cafenet.searching.budget import parse_budget
from cafenet.searching.feasible import Feasible
from cafenet.searching.latency.correction import CHECKS, Meter
from cafenet.searching.latency.estimate import LatencyModel, fit_latency
from cafenet.searching.latency.measure import LatencyConfig, Reference, measure_latencies, measure_latency
from cafenet.space.bins import Bins, IntArray
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.build import SupernetConfig, build_bins

NETWORKS: dict[str, tuple[str, dict[str, Any], int]] = {
    "ResNet-18": ("torchvision:resnet18", {}, 64),
    "MobileNetV2": ("torchvision:mobilenet_v2", {}, 96),
    "EfficientNet-B0": ("torchvision:efficientnet_b0", {}, 96),
    "Plain CNN": ("cafenet:plain_cnn", {"in_channels": 3}, 28),
    "ViT-Tiny": ("timm:vit_tiny_patch16_224", {"img_size": 96}, 96),
}
"""Name, options of the factory and side of the images."""
RUNTIMES = ("torch", "onnxruntime", "openvino", "executorch")
SHARE = 0.75
"""Budget of the picks, of the full model's latency."""
_ROUNDS, _TRIED = 8, 3


def traced(network: str) -> tuple[WidthSpace, torch.Tensor]:
    """The space of a network and an image for it."""
    name, options, side = NETWORKS[network]
    torch.manual_seed(0)
    image = torch.zeros(1, 3, side, side)
    return cafenet.trace(load_model(name, **options).eval(), image), image


def measured(network: str, runtime: str, options: Any, place: Path) -> dict[str, Any]:
    """The error of the estimate, and the ratios of picks when they are measured again."""
    space, image = traced(network)
    bins = build_bins(space, SupernetConfig())
    settings = LatencyConfig(runtime=runtime, repeats=options.repeats)
    cache = place / f"{network}-{runtime}.json"
    model = fit_latency(space, bins, image, settings, num_measured=options.fit, cache=cache, quiet=False)
    loads = [load()]
    errors = unseen_errors(model, bins, image, settings, options.unseen)
    loads.append(load())
    found = picks(model, bins, image, settings, options.picks)
    loads.append(load())
    ratios = [again(network, runtime, pick) for pick in found]
    smallest = bins.widths(np.ones((1, bins.num_bins.size), dtype=np.int64))
    known = model.latency_ms[(model.widths == smallest).all(axis=1)]
    return {
        "num_fitted": len(model.widths),
        "full_ms": model.full_ms,
        "smallest_ms": float(known[0]),
        "errors": errors,
        "ratios": ratios,
        "repeats": options.repeats,
        "load": statistics.median(loads),
        "num_checks": 1 + CHECKS,
    }


def load() -> float:
    """The number of processes that ran or waited in the last minute, for each core of the machine."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def unseen_errors(model: LatencyModel, bins: Bins, image: torch.Tensor, settings: LatencyConfig, n: int) -> list[float]:
    """Relative errors on widths between 20% and all channels that the fit has not seen, with their signs."""
    rng, space = np.random.default_rng(1), model.space
    shares = rng.uniform(0.2, 1.0, (n, bins.num_bins.size))
    rows = bins.widths(np.maximum(1, np.round(shares * bins.num_bins)).astype(np.int64))
    reference = Reference(space.extract(), image, settings, model.full_ms)
    times = [measure_latency(space.extract(row), image, settings, reference) for row in rows.tolist()]
    reference.close()
    return [float(each) for each in model.predict(rows) / np.array(times) - 1]


def picks(model: LatencyModel, bins: Bins, image: torch.Tensor, settings: LatencyConfig, n: int) -> list[IntArray]:
    """Widths within the budget that were measured and kept, with the corrections of a search."""
    space, found = model.space, []
    budget = parse_budget(f"{SHARE:.0%} latency", space, full_latency_ms=lambda: model.full_ms)
    costs = {"latency_ms": model.predict, "flops": space.flops, "params": space.params}
    reference = Reference(space.extract(), image, settings, model.full_ms)

    def measure(bin_counts: IntArray) -> float:
        slim = space.extract(bins.widths(bin_counts).tolist())
        return measure_latency(slim, image, settings, reference)

    for seed in range(n):
        meter, rng, kept = Meter(Feasible(bins, costs, budget), measure), np.random.default_rng(seed), None
        for _ in range(_ROUNDS):
            rows = meter.within.sample(_TRIED, rng)
            pick = next((row for row in rows if meter.keeps(row)), None)
            kept = kept if pick is None else pick
            if not meter.correct(pick):
                break
        if kept is not None:
            found.append(bins.widths(kept))
    reference.close()
    return found


def again(network: str, runtime: str, widths: IntArray) -> float:
    """The latency of widths as a share of the full model's, measured in a new process."""
    command = [sys.executable, "-m", "benchmarks.latency.measure", network, runtime, json.dumps(widths.tolist())]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure one width vector in turns with the full model, and print its share."""
    network, runtime, widths = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    space, image = traced(network)
    settings = LatencyConfig(runtime=runtime, repeats=31)
    reference = Reference(space.extract(), image, settings, 1.0)
    print(measure_latencies([space.extract(widths)], image, settings, reference)[0].median)
    reference.close()


if __name__ == "__main__":
    try:
        main()
    except CafeNetError as error:
        raise SystemExit(str(error)) from error
