"""A newcomer's result: a trained network, `cafenet.search(model, train, val, budget="25%")`, nothing else.

    python -m benchmarks.newcomer                        # about 40 minutes on one core; a second start continues
    python -m benchmarks.newcomer --quick --output build/newcomer.json

The rule, written down before the first run:

- two networks that no default was chosen on (`networks.py`), with fresh weights of each seed trained for 20 epochs on
  10,000 images of CIFAR-10 at 16x16; 4,000 other images are the validation data, 5,000 of the test set the test data;
- one call of `cafenet.search` with the defaults of this version. It makes its own Uniform: one factor on the channels
  of all layers, the most important channels, the same fine-tuning;
- Torch-Pruning as in `benchmarks/peers` (global, group norms, in steps to the same FLOPs), the same fine-tuning;
- the primary figure is test accuracy of the slim model minus Uniform's, and minus Torch-Pruning's, as the mean over
  all pairs (network, seed) with its paired 95% interval; seeds 0, 1 and 2;
- beside it, without being a condition: both fine-tuned for as many epochs as CafeNet's supernet and slim model had
  together, at the higher rate of the supernet. Their epochs are the cheaper ones, of a network of a quarter.

The first cell (resnet, seed 0) was measured with the defaults of its time: 5 epochs of fine-tuning at a rate of 0.02.
It showed that Uniform trained as long in all was ahead, as did the demo, whose validation data said that twice as many
epochs at the supernet's rate serve both better. So the defaults were changed, and every cell is measured with the new
ones; the first one stays in the results under a name of its own.

Nothing else is trained again, and nothing left out by its result. Every row names the lengths and rates that were the
defaults when it was measured, and a row of other ones is measured again. Results go to
benchmarks/newcomer/results.json after every part, and docs/newcomer.md is made of them.
"""

import argparse
import time
from pathlib import Path

import torch

from benchmarks.common.places import ROOT, kept_results, page_of
from benchmarks.common.results_file import Results
from benchmarks.newcomer.cells import LONG, OURS, PEER, UNIFORM, Cell
from benchmarks.newcomer.networks import NETWORKS
from benchmarks.newcomer.page import markdown


def main() -> None:
    """Measure what is missing, then write the page."""
    options = _parser().parse_args()
    torch.set_num_threads(1)
    results = Results(options.output)
    for seed in range(options.seeds):
        for network in options.network:
            measure(results, Cell(network, seed, options.cache, options.quick))
    page = page_of("newcomer", options.output)
    page.write_text(markdown(results), encoding="utf-8")
    print(f"{options.output} and {page} written")


def measure(results: Results, cell: Cell) -> None:
    """Do one network with one seed: the search with its own Uniform, then the others."""
    if not _has(results, cell, OURS):
        start = time.process_time()
        for name, row in cell.searched().items():
            results.add(cell.network, name, row | {"seconds": round(time.process_time() - start)}, str(cell.seed))
            print(f"{cell.network}, seed {cell.seed}: {name}: {row['accuracy']}", flush=True)
    for name in (PEER, UNIFORM + LONG, PEER + LONG):
        if not _has(results, cell, name):
            row = cell.fine_tuned(name)
            results.add(cell.network, name, row, str(cell.seed))
            print(f"{cell.network}, seed {cell.seed}: {name}: {row['accuracy']}", flush=True)


def _has(results: Results, cell: Cell, name: str) -> bool:
    """Return if a row is measured, with the defaults of today; others are measured again."""
    row = results.rows(cell.network).get(name, {}).get(str(cell.seed), {})
    return row.get("defaults") == cell.defaults


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=list(NETWORKS), nargs="+", default=list(NETWORKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one epoch of everything, to see that it runs")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "bench-newcomer")
    parser.add_argument("--output", type=Path, default=kept_results("newcomer"))
    return parser


if __name__ == "__main__":
    main()
