"""The trial store at scale: workers, trials, and the algorithms beside it.

    python -m benchmarks.store                                   # all parts, about a quarter of an hour
    python -m benchmarks.store --parts workers --seconds 5
    python -m benchmarks.store --parts depth --depths 1000 1000000

workers     1 to 64 processes on a journal file, SQLite and PostgreSQL; with PostgreSQL also as Optuna does it
depth       studies of up to a million trials in PostgreSQL
algorithms  proposing, surrogate and replay with up to a million widths

The server is Debian's PostgreSQL with its defaults (but for `max_connections`), on this machine, and is removed at the
end. Results go to benchmarks/store/results.json after every piece, and docs/store.md is made of them.
"""

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.common.places import kept_results, page_of
from benchmarks.common.postgresql import Server, server
from benchmarks.common.results_file import Results
from benchmarks.store.algorithms import measure_algorithm
from benchmarks.store.depth import measure_depth
from benchmarks.store.page import markdown
from benchmarks.store.workers import Load, measure

PARTS = ("workers", "depth", "algorithms")
STORAGES = ("journal", "sqlite", "postgresql", "postgresql by Optuna")


def main() -> None:
    """Measure what is missing, then write the page."""
    options = _parser().parse_args()
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the server must not outlive this process
    results = Results(options.output, fresh=options.fresh)
    with server(options="-c max_connections=300", fsync=True) as running:
        if "workers" in options.parts:
            _run_workers(results, running, options)
        if "depth" in options.parts:
            for number in options.depths:
                if f"{number}" not in results.rows("depth"):
                    results.add("depth", f"{number}", measure_depth(running.new_database(), number))
                    print(results.rows("depth")[f"{number}"], flush=True)
    if "algorithms" in options.parts:
        for name in ("trend", "random", "evolution"):
            for number in options.widths:
                if f"{name} {number}" not in results.rows("algorithms"):
                    results.add("algorithms", f"{name} {number}", measure_algorithm(name, number))
                    print(results.rows("algorithms")[f"{name} {number}"], flush=True)
    page = page_of("store", options.output)
    page.write_text(markdown(results), encoding="utf-8")
    print(f"{options.output} and {page} written")


def _run_workers(results: Results, running: Server, options: argparse.Namespace) -> None:
    """Every number of workers on every storage: without pause, and with scores that take a while."""
    for score_seconds in (0.0, options.score_seconds):
        for num_workers in options.workers:
            for storage in STORAGES:
                name = f"{storage}, {num_workers} workers, {score_seconds:g} s"
                if name in results.rows("workers"):
                    continue
                load = Load(num_workers, score_seconds, max(options.seconds, 3 * score_seconds), "Optuna" in storage)
                with tempfile.TemporaryDirectory() as place:
                    row = measure(_storage(storage, Path(place), running), load, running.cpu_seconds)
                results.add("workers", name, {"storage": storage, **row})
                print(name, row, flush=True)


def _storage(name: str, place: Path, running: Server) -> str | Path:
    """A new storage."""
    if name == "journal":
        return place / "trials.journal"
    return f"sqlite:///{place}/trials.db" if name == "sqlite" else running.new_database()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--seconds", type=float, default=6.0, help="seconds of each measurement")
    parser.add_argument("--score-seconds", type=float, default=4.0, help="seconds of a score in the second measurement")
    parser.add_argument("--depths", nargs="+", type=int, default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--widths", nargs="+", type=int, default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--output", type=Path, default=kept_results("store"))
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    return parser


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
