"""The cost of choosing the best candidate: time per step for r = 0..3, exact and race, as ratios to an r = 0 step.

    python -m benchmarks.efficiency                       # both networks, about an hour on one core
    python -m benchmarks.efficiency --networks vgg        # one of them; two processes may share the output file
    python -m benchmarks.efficiency --quick               # a few steps, to see that it runs

Everything is measured in one run on the same sampled widths, so noise is shared, and medians of ratios are taken. A
step is forward, backward and update; the r = 0 step beside it trains the leading bins of the same width. A supernet is
trained with the race meanwhile, so that the quality of its choices is seen over training: (loss of the raced choice -
minimum) / (mean - minimum) over all candidates on the whole batch; 0 is perfect, 1 is a random choice. The result goes
to benchmarks/efficiency/results.json and docs/efficiency.md, network by network.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.places import kept_results, page_of
from benchmarks.efficiency.measure import NETWORKS, full_width_ratio, measure, peak_memory
from benchmarks.efficiency.page import markdown


def main() -> None:
    """Measure what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=sorted(NETWORKS), default=sorted(NETWORKS))
    parser.add_argument("--steps", type=int, default=120, help="training steps a setting")
    parser.add_argument("--exact-every", type=int, default=6, help="steps between exact evaluations")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="three steps a setting")
    parser.add_argument("--output", type=Path, default=kept_results("efficiency"))
    args = parser.parse_args()
    if args.quick:
        args.steps, args.exact_every = 3, 1
    torch.set_num_threads(args.threads)
    for name in args.networks:
        for r in (1, 2, 3):
            key = f"{name} r={r} steps={args.steps} batch={args.batch_size}"
            if key not in read(args.output):
                print(f"measuring {key}", flush=True)
                keep(args.output, key, measure(name, r, args.steps, args.exact_every, args.batch_size))
        key = f"{name} plain batch={args.batch_size}"
        if key not in read(args.output):
            row = {"network": name, "full_width_ratio": full_width_ratio(name, args.batch_size)}
            keep(args.output, key, row | {"peak_mb": peak_memory(name, args.batch_size)})
    text = markdown(read(args.output))
    page_of("efficiency", args.output).write_text(text, encoding="utf-8")
    print(text)


def read(output: Path) -> dict[str, Any]:
    return json.loads(output.read_text()) if output.exists() else {}


def keep(output: Path, key: str, row: dict[str, Any]) -> None:
    """Add a row at once; whatever another process wrote meanwhile stays."""
    output.write_text(json.dumps(read(output) | {key: row}, indent=1) + "\n")


if __name__ == "__main__":
    main()
