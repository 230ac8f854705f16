"""The paper's ablations at a scale that a CPU bears: the ranking benchmark's residual network, from start to end.

    python -m benchmarks.ablations --tables a6 r --seeds 4          # one to two hours a seed on one core in all
    python -m benchmarks.ablations --shard 0/2                      # half of the seeds, beside another with 1/2
    python -m benchmarks.ablations --seeds 0                        # only the page

A cell trains a supernet, searches it, and trains the width that it finds from scratch. Cells with the same supernet
share it, tables with the same cell share that. Results go to benchmarks/ablations/results.json after every
piece, docs/ablations.md and its figure are made of them.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import cafenet
from benchmarks.ablations.cells import ABLATIONS, EPOCHS, Cell
from benchmarks.ablations.page import NETWORK, key_of, markdown, write_figure
from benchmarks.common.places import ROOT, kept_results
from benchmarks.common.results_file import Results
from benchmarks.ranking.labels import AUGMENTATION, BATCH_SIZE, trained_accuracy
from benchmarks.ranking.networks import SIZE, Task, task
from benchmarks.ranking.supernets import NUM_VALIDATION
from cafenet.data import eval_loader, train_loader
from cafenet.pipeline.job import Job
from cafenet.pipeline.one_stage import train_stage
from cafenet.pipeline.stages import search_in_stages
from cafenet.searching.algorithms.base import Algorithm
from cafenet.searching.budget import parse_budget
from cafenet.searching.result import FoundWidths
from cafenet.searching.search_config import SearchConfig
from cafenet.supernet.plain_training import initialised
from cafenet.supernet.sampling import SamplingConfig
from cafenet.training.config import TrainConfig
from cafenet.training.optimizers import OptimizerConfig

POPULATION, ITERATIONS = 20, 8


def main() -> None:
    """Measure what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=list(ABLATIONS), default=list(ABLATIONS), metavar="TABLE")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--shard", default="0/1", help="I/N: only every N-th seed, from I on")
    parser.add_argument("--epochs", type=float, default=EPOCHS, help="of a supernet (%(default)s)")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "bench-ablations")
    parser.add_argument("--output", type=Path, default=kept_results("ablations"))
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "ablations.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results, work = Results(options.output), task(NETWORK)
    first, step = (int(part) for part in options.shard.split("/"))
    start = time.monotonic()
    pieces = [(seed, name, cell) for seed in range(options.seeds)[first::step] for name, cell in _cells(options.tables)]
    for seed, name, cell in pieces:
        if str(seed) not in results.rows("cells").get(cell.key, {}):
            row = find(results, work, cell, seed, options.epochs, options.cache / NETWORK / f"seed-{seed}")
            results.add("cells", cell.key, row, str(seed))
            print(f"seed {seed}, {name}: {row['widths']}, {(time.monotonic() - start) / 60:.0f} min", flush=True)
    for seed, name, cell in pieces:
        train(results, work, results.rows("cells")[cell.key][str(seed)]["widths"], seed)
        print(f"seed {seed}, {name}, trained, {(time.monotonic() - start) / 60:.0f} min", flush=True)
    options.page.write_text(markdown(results, options.epochs), encoding="utf-8")
    write_figure(results, options.page.parent / "images" / "ablations.svg")


def find(results: Results, work: Task, cell: Cell, seed: int, epochs: float, cache: Path) -> dict[str, Any]:
    """The width that a cell finds, and what it took."""
    job = Job(
        train_data=train_loader(work.train, BATCH_SIZE, AUGMENTATION),
        val_data=eval_loader(work.validation),
        supernet=cell.supernet,
        training=TrainConfig(
            epochs=epochs * cell.training,
            batch_size=BATCH_SIZE,
            optimizer=OptimizerConfig(lr=0.1),
            seed=seed,
        ),
        sampling=SamplingConfig(random_share=cell.random_share),
        algorithm=_algorithm(cell),
        search=SearchConfig(seed=seed),
        scoring=cafenet.ScoringConfig(max_examples=NUM_VALIDATION),
        quiet=True,
    )
    if cell.stages.num_stages > 1:
        found = _staged(work, cell, job, cache)
    else:
        found = _in_one_stage(results, work, cell, job, cache)
    return {"widths": found.widths, "score": found.score}


def _algorithm(cell: Cell) -> Algorithm:
    if cell.algorithm == "greedy":
        return cafenet.Greedy()
    if cell.algorithm == "trend":
        return cafenet.Trend(POPULATION * ITERATIONS, farthest=2.0)
    if cell.algorithm == "random":
        return cafenet.RandomSearch(POPULATION * ITERATIONS)
    return cafenet.Evolution(population=POPULATION, iterations=ITERATIONS * cell.searching)


def _in_one_stage(results: Results, work: Task, cell: Cell, job: Job, cache: Path) -> FoundWidths:
    """The supernet comes from the cache where another cell has trained it."""
    place = cache / cell.supernet_key.replace(" ", "_")
    is_new, start = not place.exists(), time.process_time()
    budgets = [parse_budget(f"{cell.percent}%", work.space)]
    supernet = train_stage(initialised(work.build(), job.training.seed), work.space, budgets, job, place)
    if is_new:
        seconds = round(time.process_time() - start, 1)
        results.add("training seconds", cell.supernet_key, seconds, str(job.training.seed))
    [result] = cafenet.search_widths(
        supernet,
        job.train_data,
        job.val_data,
        f"{cell.percent}%",
        algorithm=job.algorithm,
        config=job.search,
        scoring=job.scoring,
        quiet=True,
    )
    return result


def _staged(work: Task, cell: Cell, job: Job, cache: Path) -> FoundWidths:
    full = {"flops": float(work.space.flops()), "params": float(work.space.params())}
    space = replace(work.space, model=initialised(work.build(), job.training.seed))
    budget = parse_budget(f"{cell.percent}%", space)
    place = cache / cell.key.replace(" ", "_")
    return search_in_stages(space, torch.zeros(1, 3, SIZE, SIZE), budget, job, cell.stages, place, full).result


def train(results: Results, work: Task, widths: dict[str, int], seed: int) -> None:
    """Train a width from scratch; one that another cell of the seed has found, too, is not trained again."""
    key = key_of(widths)
    if str(seed) not in results.rows("trained").get(key, {}):
        results.add("trained", key, trained_accuracy(work, widths, seed), str(seed))


def _cells(tables: list[str]) -> Iterator[tuple[str, Cell]]:
    seen = set()
    for table in tables:
        for name, cell in ABLATIONS[table].cells.items():
            if cell.key not in seen:
                seen.add(cell.key)
                yield f"{table}, {name}", cell


if __name__ == "__main__":
    main()
