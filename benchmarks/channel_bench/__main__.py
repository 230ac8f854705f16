"""Rankings of widths judged by labels that others made: Channel-Bench-Macro's MobileNet, 16,384 widths, 60 epochs each.

    python -m benchmarks.channel_bench screen --epochs 4 12 --seeds 1     # widths from scratch, about 30 s an epoch
    python -m benchmarks.channel_bench supernets --seeds 3                # about 10 minutes each
    python -m benchmarks.channel_bench supernets --all-images --ways fixed "fixed, 4x epochs"   # older ones
    python -m benchmarks.channel_bench supernets --network resnet --ways fixed --seeds 3   # the ResNet's table
    python -m benchmarks.channel_bench page                               # docs/channel_bench.md

Every training is kept in benchmarks/channel_bench/results.json at once; a second start does what is missing.
"""

import argparse
import time
from pathlib import Path

import torch

from benchmarks.channel_bench.page import markdown
from benchmarks.channel_bench.screening import images_of, orthogonal_rows, train_row
from benchmarks.channel_bench.supernets import larger_task, resnet_task, table_task, train_supernets
from benchmarks.common.places import ROOT, kept_results
from benchmarks.common.results_file import Results
from benchmarks.ranking.supernets import WAYS


def main() -> None:
    """Do what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("screen", "supernets", "page"))
    parser.add_argument("--size", type=int, choices=(16, 32), default=16, help="pixels (%(default)s)")
    parser.add_argument(
        "--epochs", type=float, nargs="+", default=[4.0, 12.0], help="lengths, in epochs of 16,000 images"
    )
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=["fixed", "bilateral"], metavar="WAY")
    parser.add_argument("--network", choices=("mobilenet", "resnet"), default="mobilenet", help="of the supernets")
    parser.add_argument("--all-images", action="store_true", help="16,000 training images in place of 10,000")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "bench-channel", help="of full networks")
    parser.add_argument("--output", type=Path, default=kept_results("channel_bench"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(options.output)
    if options.step == "screen":
        screen(results, options.size, options.epochs, range(options.seeds))
    elif options.step == "supernets":
        task = resnet_task() if options.network == "resnet" else larger_task() if options.all_images else table_task()
        train_supernets(results, task, options.ways, range(options.seeds), options.cache)
    (ROOT / "docs" / "channel_bench.md").write_text(markdown(results), encoding="utf-8")


def screen(results: Results, size: int, lengths: list[float], seeds: range) -> None:
    """Train the rows of the orthogonal array that are missing, short trainings first."""
    images, rows = images_of(size), orthogonal_rows(7).tolist()
    for epochs in sorted(lengths):
        for seed in seeds:
            part = f"screen {size}px {epochs:g} epochs seed {seed}"
            for row in rows:
                name = "".join(map(str, row))
                if name in results.rows(part):
                    continue
                start = time.process_time()
                found = train_row(images, row, epochs, seed)
                results.add(part, name, {**found, "seconds": round(time.process_time() - start, 1)})
                print(part, name, found, flush=True)


if __name__ == "__main__":
    main()
