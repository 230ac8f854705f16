"""What is left of transformers' FLOPs at half of all widths, without and with sizes of heads, and proven.

    python -m benchmarks.heads                       # what is missing, a quarter of an hour on a quiet core
    python -m benchmarks.heads --models 'hf:*' --fresh

Every group keeps half of its units, rounded up, or as few as it may if that is more. Both spaces are verified on real
values at random widths: in place = extracted = masked, and FLOPs and parameters as counted on the slim model. Results
go to benchmarks/heads/results.json after every model, and docs/heads.md is made of them.
"""

import argparse
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch

import cafenet
from benchmarks.common.places import kept_results, page_of
from benchmarks.common.results_file import Results
from benchmarks.heads.models import NAMES, build
from benchmarks.zoo.ours import shares_left

HEAD = """# Heads and their sizes

    python -m benchmarks.heads

Transformers of torchvision and timm as they are published, and small configs of Hugging Face's models (64 features, 4
heads, 64 tokens; decoders with `outputs="logits"`). *Left at half*: the share of the FLOPs if every width group keeps
half of its units, rounded up; *smallest*: if each keeps as few as it may. *Heads* is the default, *and sizes* is with
`head_sizes=True`, where each half counts twice in attention. *Proven*: `cafenet.verify` found no difference between
runs in place, extracted and masked models, nor between FLOPs and a count on the slim model, at random widths. Seconds
of one trace each, on a machine that was busy.
"""


def main() -> None:
    """Measure what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["*"], metavar="PATTERN")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there")
    parser.add_argument("--output", type=Path, default=kept_results("heads"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(options.output)
    for name in NAMES:
        is_asked = any(fnmatch(name, pattern) for pattern in options.models)
        if is_asked and (options.fresh or name not in results.rows("models")):
            row = _measure(name)
            results.add("models", name, row)
            print(f"{name}: {row}", flush=True)
            page_of("heads", options.output).write_text(_page(results), encoding="utf-8")
    page_of("heads", options.output).write_text(_page(results), encoding="utf-8")


def _measure(name: str) -> dict[str, Any]:
    model, inputs, outputs = build(name)
    row: dict[str, Any] = {}
    for key, head_sizes in (("heads", False), ("sizes", True)):
        start = time.perf_counter()
        space = cafenet.trace(model, inputs, outputs=outputs, head_sizes=head_sizes)
        seconds = round(time.perf_counter() - start, 2)
        shares = {which: round(float(share), 4) for which, share in shares_left(space).items()}
        problems = cafenet.verify(space, inputs, trials=1).problems
        row[key] = {"groups": len(space.groups), **shares, "seconds": seconds, "problems": problems}
    return row


def _page(results: Results) -> str:
    rows = results.rows("models")
    titles = ["model", "groups", "left at half", "smallest", "groups, and sizes", "left at half", "smallest", "proven"]
    lines = [HEAD, f"| {' | '.join(titles)} | seconds | and sizes |", "| --- |" + " ---: |" * (len(titles) + 1)]
    for name in (name for name in NAMES if name in rows):
        cells = [name.partition(":")[2]]
        for key in ("heads", "sizes"):
            found = rows[name][key]
            cells += [str(found["groups"]), f"{found['left_at_half']:.1%}", f"{found['smallest']:.1%}"]
        proven = not any(rows[name][key]["problems"] for key in ("heads", "sizes"))
        cells += ["yes" if proven else "no", *(f"{rows[name][key]['seconds']:.1f}" for key in ("heads", "sizes"))]
        lines.append(f"| {' | '.join(cells)} |")
    above = [name.partition(":")[2] for name in rows if rows[name]["sizes"]["left_at_half"] > 0.3]
    said = (
        f"Above 30% with sizes of heads: {', '.join(above)}." if above else "No model is above 30% with sizes of heads."
    )
    versions = ", ".join(f"{name} {number}" for name, number in results.versions.items())
    return "\n".join([*lines, "", said, "", f"Measured with {versions}."]) + "\n"


if __name__ == "__main__":
    main()
