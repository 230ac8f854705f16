"""Make docs/results.md from finished runs: their tables, their claims, and the command that made each.

    python tools/docs/results_page.py runs/cifar10-vgg-small runs/bccd-retinanet

What the page needs of a run (of `cafenet run` or `cafenet detect`) is kept as a small file in docs/results/, so a run
that is given replaces its section and the others stay.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

from cafenet.common.job_progress import duration
from cafenet.detection.results import COLUMNS, HEADS, from_document, spread
from cafenet.detection.results import claims as detection_claims
from cafenet.report.models import rows_of
from cafenet.report.run_records import read_run
from cafenet.runs.results import claims, count

DOCS = Path(__file__).resolve().parents[2] / "docs"

HEAD = """# Results

How large the differences between methods are, where we could measure them. Every section names its command; accuracy
is the mean and standard deviation over seeds; differences are paired by seed with a 95% Student-t interval, and one
whose interval holds zero is no win and no loss. FLOPs count one multiply-add as one.

- [Ranking](ranking.md): do supernets rank widths as training from scratch does, and which way to train one is best?
- [Peers](peers.md): the same budgets and the same training for Torch-Pruning, FastNAS, baselines and CafeNet.
- [Ablations](ablations.md): the paper's, at a small scale, with three seeds.
- [Search](search.md), [efficiency](efficiency.md), [pretrained start](pretrained.md): parts of the method on their own.
- Below: whole runs of shipped recipes, from the supernet to models on a test set. Made by
  `python tools/docs/results_page.py RUN_DIR ...`.

These runs are small stand-ins (narrow networks, a part of the data, a few epochs) that finish on a CPU. They show that
the whole job works and how large differences are at this scale, and say little about the paper's scale. Every final
model is trained from scratch with the same schedule and evaluated once on the test set after its last epoch. Uniform
was rounded to the bins of the search when these runs were made; today it is one factor on channels. CelebA's
run samples and searches widths as the paper does, the VGG's as CafeNet's default was at revision ba4e679,
with r = 1. No method is clearly ahead of another at the same budget here: two or three seeds show only differences of
some points. In detection red cells are found alike by all
backbones; what RetinaNet makes of the few small platelets differs most between its seeds, and with it the mAP.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN_DIR")
    args = parser.parse_args()
    kept = DOCS / "results"
    kept.mkdir(exist_ok=True)
    for path in args.runs:
        text = json.dumps(summary(path), indent=1, ensure_ascii=False) + "\n"
        (kept / f"{path.resolve().name}.json").write_text(text, encoding="utf-8")
    (DOCS / "results.md").write_text(page(kept), encoding="utf-8")
    print(DOCS / "results.md")


def page(kept: Path) -> str:
    """The whole page, from the small files of all runs."""
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(kept.glob("*.json"))]
    runs.sort(key=lambda run: run["kind"] == "detection")
    return "\n".join([HEAD, *map(section, runs)])


def summary(path: Path) -> dict[str, Any]:
    """The part of a run directory that the page shows."""
    if not (path / "results.json").is_file():
        raise SystemExit(f"{path} has no results.json; finish it first")
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    recipe = yaml.safe_load((path / "recipe.yaml").read_text(encoding="utf-8"))
    results = json.loads((path / "results.json").read_text(encoding="utf-8"))
    common = {
        "description": recipe["description"],
        "command": _command(manifest["command"]),
        "seconds": sum(manifest["seconds"].values()),
        "threads": manifest["hardware"]["threads"],
        "machine": manifest["hardware"]["machine"],
    }
    if results.get("format") == "cafenet-detection":
        return common | _detection(results)
    rows = rows_of(read_run(path))
    return common | {
        "kind": "classification",
        "heads": ["method", "budget", "FLOPs", "params", "accuracy"],
        "rows": [[row.method, row.budget or "-", count(row.flops), count(row.params), row.accuracy] for row in rows],
        "claims": claims(rows),
        "num_seeds": len(rows[0].accuracies),
    }


def _detection(results: dict[str, Any]) -> dict[str, Any]:
    rows = from_document(results)
    return {
        "kind": "detection",
        "heads": ["backbone", "FLOPs", "params", *HEADS],
        "rows": [
            [row.backbone, count(row.flops), count(row.params), *(row.shown(column) for column in COLUMNS)]
            for row in rows
        ],
        "claims": detection_claims(rows),
        "num_seeds": len(rows[0].seeds),
        "pretraining": rows[0].pretraining,
        "classes": {
            name: {row.backbone: spread([100 * (each[name] or 0.0) for each in row.per_class]) for row in rows}
            for name in rows[0].per_class[0]
        },
    }


def _command(words: list[str]) -> str:
    """Return the command without the places of the machine that it ran on."""
    words = [Path(words[0]).name, *(word.replace("../shared/data", "data") for word in words[1:])]
    if "--output" in words:
        place = words.index("--output")
        words = words[:place] + words[place + 2 :]
    if "--backbones.run" in words:
        words[words.index("--backbones.run") + 1] = "runs/celeba-mobilenet-v2-small"
    return " ".join(words)


def section(run: dict[str, Any]) -> str:
    """One run: command, table, claims, time."""
    lines = [f"## {run['description']}", "", "```", run["command"], "```", ""]
    if run["kind"] == "detection":
        lines += [
            "A small stand-in for COCO: 292 training and 72 test images. All backbones have the same pretraining: "
            f"{run['pretraining']}. Average precision in % over overlaps of 0.5 to 0.95 (mAP), at 0.5, at 0.75 and by "
            "size; FLOPs of backbone and FPN, parameters of the whole detector.",
            "",
        ]
    aligned = ["---" if head in ("method", "budget", "backbone") else "---:" for head in run["heads"]]
    lines += [_row(run["heads"]), _row(aligned), *map(_row, run["rows"])]
    plural = "s" if run["threads"] > 1 else ""
    hardware = f"{run['threads']} thread{plural} of a shared {run['machine']} CPU"
    lines += ["", *(f"- {claim}" for claim in run["claims"])]
    for name, values in run.get("classes", {}).items():
        lines.append(f"- {name}: " + ", ".join(f"{backbone} {value}" for backbone, value in values.items()))
    lines.append("")
    lines.append(f"{run['num_seeds']} seeds; {duration(run['seconds'])} in all on {hardware}.\n")
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
