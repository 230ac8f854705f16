"""Rankings of widths judged by labels that others made: Channel-Bench-Macro's MobileNet, 16,384 widths, 60 epochs each.

    python -m benchmarks.channel_bench screen --epochs 4 12 --seeds 1     # widths from scratch, about 30 s an epoch
    python -m benchmarks.channel_bench show                               # worths and taus of what is there

Every training is kept in benchmarks/channel_bench/results.json at once; a second start does what is missing.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.channel_bench.screening import fit_line, images_of, orthogonal_rows, train_row
from benchmarks.channel_bench.table import judge, read_labels
from benchmarks.common.results_file import Results

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Do what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("screen", "show"))
    parser.add_argument("--size", type=int, choices=(16, 32), default=16, help="pixels (%(default)s)")
    parser.add_argument(
        "--epochs", type=float, nargs="+", default=[4.0, 12.0], help="lengths, in epochs of 16,000 images"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--output", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(options.output)
    if options.step == "screen":
        screen(results, options.size, options.epochs, range(options.seeds))
    show(results)


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


def show(results: Results) -> None:
    """Print worths relative to their mean, and how the line ranks the table."""
    labels, rows = read_labels(), orthogonal_rows(7)
    truth = fit_line(labels.quarters, labels.mean.tolist())
    print("labels", np.round(truth / truth.mean(), 2), judge(labels.logarithms @ truth, labels))
    uniform = np.ones(7)
    print("sum of logarithms", judge(labels.logarithms @ uniform, labels))
    for part in results.parts():
        known = results.rows(part)
        names = ["".join(map(str, row)) for row in rows.tolist()]
        if not part.startswith("screen") or not all(name in known for name in names):
            continue
        for kind, sign in (("validation", 1), ("validation loss", -1), ("test", 1)):
            worth = fit_line(rows, [sign * known[name][kind] for name in names])
            found = {name: round(value, 3) for name, value in judge(labels.logarithms @ worth, labels).items()}
            print(f"{part}, {kind}:", np.round(worth / worth.mean(), 2), found)


if __name__ == "__main__":
    main()
