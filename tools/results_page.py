"""Make docs/results.md from finished runs: their tables, their claims, and the command that made each.

python tools/results_page.py runs/cifar10-vgg-small runs/cifar10-mobilenet-v2-small runs/celeba-mobilenet-v2-small
"""

import argparse
from pathlib import Path

from cafenet.report.drawing import duration
from cafenet.report.page import rows_of
from cafenet.report.records import RunRecord, read_run
from cafenet.runs.results import claims, count

TARGET = Path(__file__).resolve().parent.parent / "docs" / "results.md"

HEAD = """# Results

Whole runs of shipped recipes: the supernets, the searches, and every final model trained from scratch with the same
schedule, evaluated once on the test set after its last epoch. Accuracy is the mean and standard deviation over seeds;
differences are paired by seed with a 95% Student-t interval, and one whose interval holds zero is no win and no loss.
FLOPs count one multiply-add as one. Made by `python tools/results_page.py RUN_DIR ...`.

These are small stand-ins (narrow networks, a part of the data, a few epochs) that finish on a CPU. They show that the
whole job works and how large differences are at this scale. They say little about the paper's scale. No method at
half the FLOPs is clearly ahead of another here: Uniform loses little to the original, so there is little to win, and
two or three seeds show only differences of some points. Whether supernets rank widths well is the subject of
`benchmarks/ranking`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR")
    args = parser.parse_args()
    TARGET.write_text("\n".join([HEAD, *(section(read_run(path)) for path in args.runs)]))
    print(TARGET)


def section(run: RunRecord) -> str:
    """One run: command, table, claims, time."""
    if run.results is None:
        raise SystemExit(f"{run.path} has no results.json; finish it first")
    rows = rows_of(run)
    words = [Path(run.manifest["command"][0]).name, *run.manifest["command"][1:]]
    words = [word.replace("../shared/data", "data") for word in words]
    if "--output" in words:  # where it was run does not matter
        place = words.index("--output")
        words = words[:place] + words[place + 2 :]
    lines = [f"## {run.recipe['description']}", "", "```", " ".join(words), "```", ""]
    lines += ["| method | budget | FLOPs | params | accuracy |", "| --- | --- | ---: | ---: | ---: |"]
    lines += [
        f"| {row.method} | {row.budget or '-'} | {count(row.flops)} | {count(row.params)} | {row.accuracy} |"
        for row in rows
    ]
    total = sum(run.manifest["seconds"].values())
    lines += ["", *(f"- {claim}" for claim in claims(rows)), ""]
    lines.append(f"{len(rows[0].accuracies)} seeds; {duration(total)} in all on {_hardware(run)}.\n")
    return "\n".join(lines)


def _hardware(run: RunRecord) -> str:
    threads = run.manifest["hardware"]["threads"]
    return f"{threads} thread{'s' if threads > 1 else ''} of a shared {run.manifest['hardware']['machine']} CPU"


if __name__ == "__main__":
    main()
