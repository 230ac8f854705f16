"""The number of width vectors that CafeNet prices in a second.

    python -m benchmarks.pricing

Random width vectors of MobileNetV2 (224 px) are priced as one array by `space.flops`, and a sample of them one by one
as dicts. One thread; the first call of each kind is not counted.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy is imported

import numpy as np
import torch

import cafenet
from benchmarks.zoo.models import build_model, image
from cafenet.space.layout import IntArray


def main() -> None:
    """Print vectors a second, priced as an array and in a loop."""
    options = _parser().parse_args()
    torch.set_num_threads(1)
    space = cafenet.trace(build_model(options.model), image(224))
    widths = random_widths(space, options.num_vectors, options.seed)
    sample = [space.widths_dict(row) for row in widths[: options.num_looped]]
    array_seconds = median_seconds(lambda: space.flops(widths), options.runs)
    loop_seconds = median_seconds(lambda: [space.flops(each) for each in sample], options.runs)
    if [space.flops(each) for each in sample] != space.flops(widths)[: len(sample)].tolist():
        raise AssertionError("the array and the loop must give the same FLOPs")
    per_second, looped_per_second = len(widths) / array_seconds, len(sample) / loop_seconds
    print(f"{options.model}, {len(space.groups)} groups, median of {options.runs} runs, one thread")
    print(f"array of {len(widths):,}: {per_second:,.0f} width vectors/s ({array_seconds:.3f} s)")
    print(f"loop over {len(sample):,} dicts: {looped_per_second:,.0f} width vectors/s ({loop_seconds:.3f} s)")
    print(f"ratio: {per_second / looped_per_second:,.0f}")


def random_widths(space: cafenet.WidthSpace, num_vectors: int, seed: int) -> IntArray:
    """Uniform widths of every group, in whole units."""
    rng = np.random.default_rng(seed)
    low = [group.min_width // group.divisor for group in space.groups]
    high = [group.channels // group.divisor for group in space.groups]
    units = rng.integers(low, high, size=(num_vectors, len(space.groups)), endpoint=True)
    divisors = np.array([group.divisor for group in space.groups], dtype=np.int64)
    widths: IntArray = units * divisors
    return widths


def median_seconds(action: Callable[[], object], num_runs: int) -> float:
    """The median time of an action, after one that is not counted."""
    seconds = []
    for _ in range(num_runs + 1):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="mobilenet_v2", help="torchvision name (%(default)s)")
    parser.add_argument("--num-vectors", type=int, default=1_000_000, help="in the array (%(default)s)")
    parser.add_argument("--num-looped", type=int, default=2_000, help="priced one by one (%(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="the median of these counts (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the widths (%(default)s)")
    return parser


if __name__ == "__main__":
    main()
