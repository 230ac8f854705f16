"""Quality and speed of the search, in four parts, each of which goes on where it was stopped.

    python -m benchmarks.search                              # all parts, some two hours on one core
    python -m benchmarks.search --parts table --shard 0/2    # half of the seeds, beside another process with 1/2
    python -m benchmarks.search --quick --output build/search.json

table     regret on a table of trained networks, beside Optuna's samplers, paired by seed
overhead  milliseconds per candidate beyond its evaluation
supernet  widths scored per minute on a trained CIFAR-10 supernet, racing against the plain way, and their picks
workers   two workers of one thread against one

Results go to benchmarks/search/results.json after every piece, and docs/search.md is made of them.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.common.places import ROOT, kept_results, page_of
from benchmarks.common.results_file import Results
from benchmarks.search.overhead import measure_overhead
from benchmarks.search.page import markdown
from benchmarks.search.peers import SAMPLERS, search_peer
from benchmarks.search.supernet import compare_scoring, compare_workers
from benchmarks.search.table import MODES, read_table, search_table, settle_on_table
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.algorithms.greedy import Greedy
from cafenet.searching.algorithms.random_search import RandomSearch

PARTS = ("table", "overhead", "supernet", "workers")
PERCENTS = (75, 50, 25)
OURS = {"Evolution": Evolution(), "Random": RandomSearch(), "Greedy": Greedy()}
OUR_EVALUATIONS, PEER_EVALUATIONS = 400, 200


def main() -> None:
    """Measure what is missing, then write the page."""
    options = _parser().parse_args()
    torch.set_num_threads(1)
    results = Results(options.output, fresh=options.fresh)
    first, step = (int(part) for part in options.shard.split("/"))
    if "table" in options.parts:
        run_table(results, range(3 if options.quick else options.seeds)[first::step])
    if "overhead" in options.parts:
        measure_overhead(results, num_runs=1 if options.quick else 3)
    if "supernet" in options.parts:
        compare_scoring(results, options.cache, range(1 if options.quick else 5)[first::step], quick=options.quick)
    if "workers" in options.parts:
        compare_workers(results, options.cache, num_runs=1 if options.quick else 3, quick=options.quick)
    page = page_of("search", options.output)
    page.write_text(markdown(results), encoding="utf-8")
    print(f"{options.output} and {page} written")


def run_table(results: Results, seeds: Sequence[int]) -> None:
    """Every algorithm, mode and budget, seed by seed; the slow ones last."""
    table, start = read_table(), time.monotonic()
    settings = [(name, mode, percent) for name in (*OURS, "Trend", *SAMPLERS) for mode in MODES for percent in PERCENTS]
    for name, mode, percent in settings:
        row = f"{mode} {percent}% {name}"
        known = results.rows("table").get(row, {})
        for seed in (seed for seed in seeds if str(seed) not in known):
            if name in OURS:
                track = search_table(OURS[name], table, mode, percent, seed, OUR_EVALUATIONS)
                results.add("table", row, [track.values(OUR_EVALUATIONS)], str(seed))
            elif name == "Trend":
                settled = settle_on_table(table, mode, percent, seed, OUR_EVALUATIONS)
                results.add("table", row, [settled], str(seed))
            else:
                run = search_peer(name, table, mode, percent, seed, PEER_EVALUATIONS)
                values = [track.values(PEER_EVALUATIONS) for track in (run.distinct, run.all_suggestions)]
                counts = [run.distinct.num_evaluations, run.all_suggestions.num_evaluations]
                results.add("table", row, [*values, counts], str(seed))
        print(f"{row}: {len(seeds)} seeds ({(time.monotonic() - start) / 60:.1f} min)", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--seeds", type=int, default=100, help="searches of each kind on the table (%(default)s)")
    parser.add_argument("--shard", default="0/1", help="I/N: only every N-th seed, from I on")
    parser.add_argument("--quick", action="store_true", help="3 seeds and little training, to see that it runs")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument(
        "--cache", type=Path, default=ROOT / "build" / "bench-search", help="where the supernet is kept"
    )
    parser.add_argument("--output", type=Path, default=kept_results("search"))
    return parser


if __name__ == "__main__":
    main()
