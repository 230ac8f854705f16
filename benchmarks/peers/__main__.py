"""Peers and baselines within the same FLOPs, with the same training: CIFAR-10 at 16x16, three small networks.

    python -m benchmarks.peers --network vgg --seeds 3          # some hours on one core in all
    python -m benchmarks.peers --shard 0/2                      # half of the cells, beside another process with 1/2
    python -m benchmarks.peers --trainings 2                    # every network that was found trained once more
    python -m benchmarks.peers --long --percents 25 --methods CafeNet-T   # from the weights found, as long as from
                                                                          # scratch; at 50 the other number of stages
    python -m benchmarks.peers --five-times --seeds 3           # what was found, trained five times as long
    python -m benchmarks.peers --quick --output build/peers.json

Two protocols: the slim network trained from scratch (fresh weights, 20 epochs), and fine-tuned from what the tool gives
(5 epochs). Results go to benchmarks/peers/results.json after every cell, and docs/peers.md is made of them.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.places import ROOT, kept_results
from benchmarks.common.results_file import Results
from benchmarks.peers import lengthened, methods
from benchmarks.peers.methods import METHODS, prepared
from benchmarks.peers.page import markdown
from benchmarks.peers.tasks import BUILDERS, FINETUNE_EPOCHS, PERCENTS, SCRATCH_EPOCHS, Task, task, trained_for
from cafenet.supernet.plain_training import initialised, train_model

OTHER_SEED = 1000
"""Distance between the seeds of one network's trainings from scratch."""


def main() -> None:
    """Measure what is missing, then write the page."""
    options = _parser().parse_args()
    torch.set_num_threads(1)
    if options.quick:
        methods.SUPERNET_EPOCHS, methods.NUM_SEARCHED, methods.RANDOM_EPOCHS = 1, 30, 1
    results = Results(options.output)
    if options.five_times:
        for again in range(options.trainings):
            for seed in range(options.seeds):
                for percent in sorted(options.percents):
                    for network in options.network:
                        for name in lengthened.known_methods(results, network, percent, seed):
                            lengthened.train_five_times_as_long(results, task(network), percent, name, seed, again)
        options.page.write_text(markdown(results), encoding="utf-8")
        return
    cells = [
        (seed, network, percent, name)
        for seed in range(options.seeds)
        for network in options.network
        for percent in options.percents
        for name in options.methods
    ]
    first, step = (int(part) for part in options.shard.split("/"))
    originals = {(seed, network): None for seed, network, _, _ in cells}
    for number, (seed, network) in enumerate(originals):
        if number % step == first:
            measure_original(results, task(network), seed, options.cache, options.quick)
    for number, (seed, network, percent, name) in enumerate(cells):
        is_mine = list(originals).index((seed, network)) % step == first
        if not is_mine or str(seed) in results.rows(f"{network} {percent}%").get(name, {}):
            continue
        row = measure(task(network), percent, name, seed, options.cache, options.quick)
        results.add(f"{network} {percent}%", name, row, str(seed))
        print(f"{number + 1} of {len(cells)}: {network} {percent}% {name}, seed {seed}: {row}", flush=True)
    for seed, network, percent, name in cells if not options.quick else ():
        if list(originals).index((seed, network)) % step == first:
            train_again(results, task(network), percent, name, seed, options.trainings)
            if options.long:
                train_long(results, task(network), percent, name, seed, options.cache)
    options.page.write_text(markdown(results), encoding="utf-8")


def measure_original(results: Results, work: Task, seed: int, cache: Path, quick: bool) -> None:
    """The whole network's accuracy, once a seed."""
    if str(seed) in results.rows(f"{work.name} original").get("Original", {}):
        return
    model = prepared(work, seed, 1 if quick else SCRATCH_EPOCHS, _place(cache, work, seed, quick) / "original")
    row = {"flops": work.flops(model), "scratch": work.accuracy(model)}
    results.add(f"{work.name} original", "Original", row, str(seed))


def measure(work: Task, percent: int, name: str, seed: int, cache: Path, quick: bool) -> dict[str, Any]:
    """One method, one budget, one seed: what it found, what it took, what becomes of it."""
    scratch, finetune = (1, 1) if quick else (SCRATCH_EPOCHS, FINETUNE_EPOCHS)
    place = _place(cache, work, seed, quick)
    trained = prepared(work, seed, scratch, place / "original")
    start = time.process_time()
    slim = METHODS[name](work, trained, percent, seed, place / "methods")
    search_seconds = time.process_time() - start
    tuned = train_model(slim, work.example, work.batches(), trained_for(finetune, seed, lr=0.02), quiet=True)
    fresh = train_model(initialised(slim, seed), work.example, work.batches(), trained_for(scratch, seed), quiet=True)
    return {
        "flops": work.flops(slim),
        "params": work.params(slim),
        "search_seconds": round(search_seconds, 1),
        "scratch": work.accuracy(fresh),
        "finetuned": work.accuracy(tuned),
        "widths": _widths(slim),
    }


def train_again(results: Results, work: Task, percent: int, name: str, seed: int, trainings: int) -> None:
    """Train what a method found from scratch until it was so `trainings` times, with other weights and batches."""
    part = f"{work.name} {percent}%"
    found = results.rows(part)[name][str(seed)]
    for number in range(1, trainings):
        inner = f"{seed} again {number}"
        if inner in results.rows(f"{part} again").get(name, {}):
            continue
        slim = work.slim(found["widths"])
        if work.flops(slim) != found["flops"]:
            raise RuntimeError(f"{part} {name}, seed {seed}: {work.flops(slim)} FLOPs, but {found['flops']} were found")
        other = seed + OTHER_SEED * number
        fresh = initialised(slim, other)
        fresh = train_model(fresh, work.example, work.batches(), trained_for(SCRATCH_EPOCHS, other), quiet=True)
        results.add(f"{part} again", name, work.accuracy(fresh), inner)
        print(f"{part} {name}, seed {seed} again", flush=True)


def train_long(results: Results, work: Task, percent: int, name: str, seed: int, cache: Path) -> None:
    """Train what a method gives from its weights exactly as from scratch."""
    part = f"{work.name} {percent}% long"
    if str(seed) in results.rows(part).get(name, {}):
        return
    place = _place(cache, work, seed, quick=False)
    trained = prepared(work, seed, SCRATCH_EPOCHS, place / "original")
    slim = METHODS[name](work, trained, percent, seed, place / "methods")
    found = results.rows(f"{work.name} {percent}%")[name][str(seed)]
    if _widths(slim) != found["widths"]:
        raise RuntimeError(f"{part} {name}, seed {seed}: another network than in the table; its cache is gone")
    tuned = train_model(slim, work.example, work.batches(), trained_for(SCRATCH_EPOCHS, seed), quiet=True)
    results.add(part, name, work.accuracy(tuned), str(seed))
    print(f"{part} {name}, seed {seed}", flush=True)


def _widths(slim: torch.nn.Module) -> list[int]:
    return [module.out_channels for module in slim.modules() if isinstance(module, torch.nn.Conv2d)]


def _place(cache: Path, work: Task, seed: int, quick: bool) -> Path:
    return cache / ("quick" if quick else "full") / work.name / f"seed-{seed}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=sorted(BUILDERS), nargs="+", default=sorted(BUILDERS))
    parser.add_argument("--methods", choices=list(METHODS), nargs="+", default=list(METHODS), metavar="METHOD")
    parser.add_argument("--percents", type=int, choices=PERCENTS, nargs="+", default=list(PERCENTS), help="of FLOPs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trainings", type=int, default=1, help="from scratch, of each network found (%(default)s)")
    parser.add_argument("--long", action="store_true", help="also train what was found from its weights that long")
    parser.add_argument("--five-times", action="store_true", help="only train what was found five times as long")
    parser.add_argument("--shard", default="0/1", help="I/N: every N-th network and seed, from I on")
    parser.add_argument("--quick", action="store_true", help="one epoch of everything, to see that it runs")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "bench-peers")
    parser.add_argument("--output", type=Path, default=kept_results("peers"))
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "peers.md")
    return parser


if __name__ == "__main__":
    main()
