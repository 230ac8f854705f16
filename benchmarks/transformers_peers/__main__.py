"""Transformers at half of their FLOPs: CafeNet against Uniform and Torch-Pruning, fine-tuned alike.

    python -m benchmarks.transformers_peers --seeds 3        # continues where it stopped
    python -m benchmarks.transformers_peers --quick --output build/transformers-peers.json

A small ViT learns CIFAR-10 at 16x16, a small GPT the characters of the King James Version (Debian's package
`bible-kjv-text`, fetched with apt-get if it is not there). For each seed the whole network is trained once, and every
method begins with it. All cells are trained by the same code with the same options; the seeds are paired.

The rule, written before the first run: of each task, CafeNet is ahead of (or behind) a method if the paired 95%
interval over all seeds does not hold zero, and no different otherwise; all seeds count, and options are not changed
after the first run. CafeNet trains its supernet for some epochs and then its slim network for the same number as
everyone, so the fair rows are those that train "as long in all". Results go to
benchmarks/transformers_peers/results.json after every cell, and docs/transformers_peers.md is made of them.
"""

import argparse
import time
from pathlib import Path

import torch

from benchmarks.common.places import ROOT, kept_results, page_of
from benchmarks.common.results_file import Results
from benchmarks.transformers_peers import tasks
from benchmarks.transformers_peers.methods import METHODS, original
from benchmarks.transformers_peers.page import markdown
from benchmarks.transformers_peers.tasks import TASKS


def main() -> None:
    """Measure what is missing, then write the page."""
    options = _parser().parse_args()
    torch.set_num_threads(1)
    results = Results(options.output)
    page = page_of("transformers_peers", options.output)
    epochs = 1 if options.quick else tasks.ORIGINAL_EPOCHS
    for seed in range(options.seeds):
        for name in options.tasks:
            _measure(results, name, seed, options.cache / name / f"seed-{seed}", epochs, options.methods)
            page.write_text(markdown(results), encoding="utf-8")
    page.write_text(markdown(results), encoding="utf-8")


def _measure(results: Results, name: str, seed: int, place: Path, epochs: int, methods: list[str]) -> None:
    rows = results.rows(name)
    missing = [each for each in ("Original", *methods) if str(seed) not in rows.get(each, {})]
    if not missing:
        return
    task = TASKS[name]()
    whole = original(task, seed, place, epochs)
    for each in missing:
        start = time.process_time()
        model = whole if each == "Original" else METHODS[each](task, whole, seed, place / each.replace(" ", "-"))
        row = {
            "score": task.score(model),
            "flops": task.flops(model),
            "params": sum(parameter.numel() for parameter in model.parameters()),
            "seconds": round(time.process_time() - start, 1),
        }
        results.add(name, each, row, str(seed))
        print(f"{name}, seed {seed}, {each}: {row}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", choices=list(TASKS), nargs="+", default=list(TASKS))
    parser.add_argument("--methods", choices=list(METHODS), nargs="+", default=list(METHODS), metavar="METHOD")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="train the originals for one epoch, to see that it runs")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "bench-transformers-peers")
    parser.add_argument("--output", type=Path, default=kept_results("transformers_peers"))
    return parser


if __name__ == "__main__":
    main()
