"""Why a pick ends where it does: the widths between uniform ones and CafeNet-T's pick, from several weights.

    python -m benchmarks.peers.starts --network mobilenet_v2 --percent 25 --seed 0      # some ten minutes

The cell must have been measured by `python -m benchmarks.peers` before: its supernet and its scores are read. Every
width on the way is trained from scratch, and fine-tuned from the supernet's weights and from those of the trained
network, its most important channels in front. Rows go to benchmarks/peers/results.json, the table to docs/peers.md.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from benchmarks.peers.methods import prepared
from benchmarks.peers.page import STARTS, markdown
from benchmarks.peers.tasks import BUILDERS, FINETUNE_EPOCHS, PERCENTS, SCRATCH_EPOCHS, Task, task, trained_for
from benchmarks.places import ROOT
from benchmarks.search_results import Results
from torch import nn

import cafenet
from cafenet.importance import sort_by_importance
from cafenet.report.records import read_trials
from cafenet.retrain import initialised, train_model


def main() -> None:
    """Measure what is missing of one cell, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=sorted(BUILDERS), required=True)
    parser.add_argument("--percent", type=int, choices=PERCENTS, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "bench-peers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results, work, seed = Results(Path(__file__).with_name("results.json")), task(options.network), options.seed
    place = options.cache / "full" / work.name / f"seed-{seed}"
    stage = place / "methods" / f"{options.percent}-pretrained" / "stage-1"
    if not stage.exists():
        raise SystemExit(f"{stage} must hold a search; run `python -m benchmarks.peers --methods CafeNet-T` first")
    trained = prepared(work, seed, SCRATCH_EPOCHS, place / "original")
    shared = work.build(seed)
    shared.load_state_dict(torch.load(stage / "supernet.pt", map_location="cpu", weights_only=True)["model"])
    name = f"{work.name} at {options.percent}%, seed {seed}"
    for trial in read_trials(stage / "trials.journal"):
        inner = " ".join(map(str, trial.widths.values()))
        if trial.label in ("on the way", "final") and inner not in results.rows(STARTS).get(name, {}):
            row = {"score": round(100 * trial.value, 2), **ends(work, trained, shared, trial.widths, seed)}
            results.add(STARTS, name, row, inner)
            print(name, inner, row, flush=True)
    (ROOT / "docs" / "peers.md").write_text(markdown(results), encoding="utf-8")


def ends(work: Task, trained: nn.Module, shared: nn.Module, widths: dict[str, int], seed: int) -> dict[str, Any]:
    """The test accuracy of one width, from each of the starts."""
    space = cafenet.trace(trained, work.example, verify=False)
    ordered = sort_by_importance(space, trained)
    found = {}
    for name, weights in (("supernet", shared), ("trained", ordered)):
        slim = space.extract(widths, model=weights)
        tuned = train_model(slim, work.example, work.batches(), trained_for(FINETUNE_EPOCHS, seed, lr=0.02), quiet=True)
        found[name] = work.accuracy(tuned)
    fresh = initialised(space.extract(widths, model=shared), seed)
    config = trained_for(SCRATCH_EPOCHS, seed)
    return found | {"scratch": work.accuracy(train_model(fresh, work.example, work.batches(), config, quiet=True))}


if __name__ == "__main__":
    main()
