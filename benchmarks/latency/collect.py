"""Raw measurements of width vectors, kept so that estimates can be compared without measuring again.

    python -m benchmarks.latency.collect                                   # goes on where it was stopped
    python -m benchmarks.latency.collect --networks ResNet-18 --divisors 8

Each line of `measurements.jsonl` is one width vector of one network: for each runtime quantiles of its
milliseconds, of those of the full model in the same rounds, and of their ratios. A model is exported once for all
runtimes, by PyTorch's older ONNX exporter, which takes a second where a search's takes five. Rows
`fit` are drawn as a search draws them for its estimate, rows `unseen` from another generator, `again` measures some
rows a second time, which shows the noise.
"""

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.latency.measure import NETWORKS, load, traced
from cafenet.runtimes.onnx_runtime import read_onnx
from cafenet.runtimes.open_vino import read_openvino
from cafenet.runtimes.session import Pass
from cafenet.runtimes.torch_eager import TorchSession
from cafenet.searching.latency.estimate import spread_rows
from cafenet.space.bins import Bins, IntArray
from cafenet.supernet.build import SupernetConfig, build_bins

READERS = {"onnxruntime": read_onnx, "openvino": read_openvino}
MEASUREMENTS = Path(__file__).parent / "measurements.jsonl"
NUM_FIT, NUM_MORE, NUM_UNSEEN, NUM_AGAIN = 24, 24, 20, 4
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75)
_WARMUP, _ROUNDS, _MOST_ROUNDS, _SECONDS = 3, 20, 200, 0.8


def planned(bins: Bins) -> Iterator[tuple[str, int, IntArray]]:
    """The parts, numbers and widths of all rows, in the order in which they are measured."""
    fit = bins.widths(spread_rows(bins.num_bins, NUM_FIT, np.random.default_rng(0)))
    shares = np.random.default_rng(1).uniform(0.2, 1.0, (NUM_UNSEEN, bins.num_bins.size))
    unseen = bins.widths(np.maximum(1, np.round(shares * bins.num_bins)).astype(np.int64))
    more = bins.widths(spread_rows(bins.num_bins, NUM_MORE, np.random.default_rng(2)))
    for part, rows in (("fit", fit), ("unseen", unseen), ("again", unseen[:NUM_AGAIN]), ("more", more)):
        yield from ((part, number, row) for number, row in enumerate(rows))


def opened(model: torch.nn.Module, image: torch.Tensor, runtimes: list[str], stack: ExitStack) -> dict[str, Pass]:
    """A pass of a model in each runtime; all open one ONNX file, which PyTorch's older exporter writes in a second."""
    inputs, passes, model = ((image,), {}), {}, model.eval()
    path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (image,), str(path), dynamo=False, verbose=False)
    for runtime in runtimes:
        if runtime == "torch":
            passes[runtime] = TorchSession(model).bind(inputs)
            continue
        session = READERS[runtime](path, 1)
        stack.callback(session.close)
        passes[runtime] = session.bind(inputs)
    return passes


def compared(run: Pass, reference: Pass) -> dict[str, list[float]]:
    """Quantiles of the milliseconds of a pass and of the reference in turns with it, of their ratios, and of the
    processor's time, which does not count while other processes have the core."""
    rounds: list[list[float]] = []
    for _ in range(_WARMUP):
        run(), reference()
    start = time.perf_counter()
    while len(rounds) < _ROUNDS or (len(rounds) < _MOST_ROUNDS and time.perf_counter() - start < _SECONDS):
        rounds.append([*_timed(run), *_timed(reference)])
    own, cpu_own, full, cpu_full = np.array(rounds).T
    times = {"own": own, "full": full, "ratio": own / full, "cpu_own": cpu_own, "cpu_full": cpu_full}
    times["cpu_ratio"] = cpu_own / cpu_full
    return {name: [round(x, 5) for x in np.quantile(each, QUANTILES).tolist()] for name, each in times.items()}


def _timed(run: Pass) -> tuple[float, float]:
    """The milliseconds of a pass, by the clock and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return 1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)


def collect(network: str, divisor: int, options: argparse.Namespace, done: set[str]) -> None:
    """Measure the missing rows of a network."""
    space, image = traced(network)
    bins = build_bins(space, SupernetConfig(divisor=divisor))
    names = [part for part in planned(bins) if part[0] in options.parts]
    missing = [each for each in names if _key(network, divisor, options.runtimes, *each[:2]) not in done]
    with ExitStack() as stack, torch.no_grad():
        reference = opened(space.extract(), image, options.runtimes, stack) if missing else {}
        for part, number, row in missing:
            with ExitStack() as own:
                os.nice(3)  # exports need no quiet, only passes do
                passes = opened(space.extract(row.tolist()), image, options.runtimes, own)
                os.nice(-3)
                found = {name: compared(each, reference[name]) for name, each in passes.items()}
            line = {"network": network, "divisor": divisor, "part": part, "number": number, "widths": row.tolist()}
            line |= {"times": found, "load": round(load(), 2)}
            with options.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
            quotients = {name: round(each["cpu_ratio"][3], 3) for name, each in found.items()}
            print(network, divisor, part, number, quotients, flush=True)


def _key(network: str, divisor: int, runtimes: list[str], part: str, number: int) -> str:
    return f"{network} {divisor} {','.join(sorted(runtimes))} {part} {number}"


def kept(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of measurements."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--runtimes", nargs="+", choices=["torch", *READERS], default=["torch", *READERS])
    parser.add_argument("--divisors", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--parts", nargs="+", default=["fit", "unseen", "again"])
    parser.add_argument("--output", type=Path, default=MEASUREMENTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for divisor in options.divisors:
        for network in options.networks:
            lines = kept(options.output)
            done = {_key(x["network"], x["divisor"], list(x["times"]), x["part"], x["number"]) for x in lines}
            collect(network, divisor, options, done)


if __name__ == "__main__":
    main()
