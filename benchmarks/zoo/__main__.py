"""The models of the zoo that each tool handles, and the time that it takes to find out what can vary.

    python -m benchmarks.zoo                        all 80 classification models of torchvision, all tools
    python -m benchmarks.zoo --timm --models 'timm:*' --output build/zoo-timm.json
    python -m benchmarks.zoo --models 'resnet*' densenet201 --skip-peers --output build/zoo.json

Every model meets every tool in a process of its own, tools interleaved per model. Each finished row is saved at once,
and a second start goes on where the first one stopped. See `--help` for the limits.
"""

import argparse
import multiprocessing
import shlex
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.common.places import kept_results, page_of
from benchmarks.zoo.models import model_names
from benchmarks.zoo.page import markdown
from benchmarks.zoo.results_file import Results
from benchmarks.zoo.tool import Facts
from benchmarks.zoo.worker import NUM_RUNS, SLOW_SECONDS, Job, work

OURS = ("bare", "cafenet")
PEERS = {"torch-pruning": "torch_pruning", "modelopt": "modelopt"}
SET_UP_SECONDS = 300.0


def main() -> None:
    """Measure what is missing, then write the page."""
    options = _parser().parse_args()
    tools = _tools(skip_peers=options.skip_peers)
    names = model_names(options.models, timm=options.timm)
    if not names:
        sys.exit(f"--models must match a model, but none matches {' '.join(options.models)}")
    settings = {"limit": options.limit, "memory_gb": options.memory_gb, "seed": options.seed}
    settings |= {"num_runs": NUM_RUNS, "single_run_above_seconds": SLOW_SECONDS}
    results = Results(options.output, settings, fresh=options.fresh)
    todo = [(name, tool) for name in names for tool in tools if results.get(name, tool) is None]
    start = time.monotonic()
    for number, (name, tool) in enumerate(todo):
        facts = measure(Job(name, tool, options.memory_gb, options.seed), options.limit)
        results.add(name, tool, facts)
        eta_min = (time.monotonic() - start) / (number + 1) * (len(todo) - number - 1) / 60
        print(f"[{number + 1}/{len(todo)}] {name:28} {tool:13} {_outcome(facts)}  (ETA {eta_min:.0f} min)", flush=True)
    page = page_of("zoo", options.output)
    command = shlex.join(["python", "-m", "benchmarks.zoo", *sys.argv[1:]])
    page.write_text(markdown(results, command), encoding="utf-8")
    print(f"{options.output} and {page} written")


def measure(job: Job, limit: float) -> Facts:
    """Run one job in a process of its own and return its row; the process ends when a step takes too long."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(sender, job), daemon=True)
    process.start()
    sender.close()
    row: Facts = {"ok": False}
    step, seconds = "set-up", SET_UP_SECONDS
    try:
        while receiver.poll(seconds):
            kind, value = receiver.recv()
            if kind == "broken":
                sys.exit(f"{job.tool} could not start on {job.model}: {value}")
            if kind == "step":
                step, seconds = value, limit
            else:
                row |= value
        row["error"] = f"over {seconds:g} s ({step})"
        process.kill()
        process.join()
    except EOFError:  # the process has ended
        process.join()
        if not row["ok"] and "error" not in row:
            row["error"] = f"the process died ({step}, exit code {process.exitcode})"
    return row


def _outcome(facts: Facts) -> str:
    seconds = f"{facts['seconds']:7.2f} s" if "seconds" in facts else " " * 9
    return f"{seconds} {'ok' if facts['ok'] else facts['error']}"


def _tools(*, skip_peers: bool) -> list[str]:
    if skip_peers:
        return list(OURS)
    missing = [tool for tool, module in PEERS.items() if find_spec(module) is None]
    if missing:
        sys.exit(f"{', '.join(missing)} must be installed: pip install 'cafenet[peers]', or add --skip-peers")
    return [*OURS, *PEERS]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="*", default=[], metavar="PATTERN", help="only these, such as 'resnet*'")
    parser.add_argument("--timm", action="store_true", help="also the timm models (named timm:...)")
    parser.add_argument("--skip-peers", action="store_true", help="only the bare run and CafeNet")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for one step of a tool (%(default)g)")
    parser.add_argument("--memory-gb", type=float, default=12.0, help="memory for one process (%(default)g)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and images (%(default)s)")
    parser.add_argument("--fresh", action="store_true", help="start a new file; the rows in it are lost")
    parser.add_argument("--output", type=Path, default=kept_results("zoo"), help="JSON file (%(default)s)")
    return parser


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from here")
