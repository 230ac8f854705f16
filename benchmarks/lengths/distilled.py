"""Distillation from the given model: the slim model and Uniform, each fine-tuned with and without a teacher.

The rule, written down before the first run: the three networks of `benchmarks/peers` in the short regime, seeds 0 and
1. One search with the default 5 epochs of the supernet gives the slim model's weights. These, and those of Uniform, are
fine-tuned for 15 epochs as by default, and once more with the trained original as the teacher (`DistillConfig()`: half
of the loss, temperature 4). If the distilled slim models are better on the judging images by the paired 95% interval
over networks and seeds, distillation becomes the default for a model that comes trained; if nothing is clear, it is an
option; in any case the page shows both. A further search has a supernet that learns from the original, too
(`SamplingConfig(full_share=0, distill=DistillConfig())`); by the same rule, it becomes the default if its distilled
slim models are better than the distilled ones of the usual supernet.
"""

from pathlib import Path
from typing import Any

from torch import nn

import cafenet
from benchmarks.common.results_file import Results
from benchmarks.lengths.lengths import EPOCHS, SHORT
from benchmarks.peers.methods import prepared, uniform
from benchmarks.peers.tasks import Task
from cafenet.data import eval_loader
from cafenet.scoring.evaluation import evaluate
from cafenet.supernet.train import TrainConfig
from cafenet.training.distillation import DistillConfig
from cafenet.training.optimizers import OptimizerConfig

SUFFIX = ", with a teacher"
"""Ending of the names of the results' parts."""
PERCENT, SUPERNET_EPOCHS, RATE = 25, 5, 0.05
OURS, LEARNED, UNIFORM = "CafeNet", "CafeNet, distilled supernet", "Uniform, 15 epochs"


def measure_distillation(results: Results, work: Task, seed: int, place: Path) -> None:
    """Measure the fine-tunings of one network and seed that are missing."""
    part = work.name + SUFFIX
    missing = [
        (base, taught)
        for base in (OURS, LEARNED, UNIFORM)
        for taught in (False, True)
        if not _has(results, part, base, taught, seed)
    ]
    if not missing:
        return
    trained = prepared(work, seed, SHORT.original_epochs, place / "original")
    begun: dict[str, nn.Module] = {}
    for base, taught in missing:
        if base not in begun:
            begun[base] = _begun(base, work, trained, seed, place)
        slim = cafenet.train_model(
            begun[base],
            work.example,
            work.batches(),
            TrainConfig(epochs=EPOCHS - SUPERNET_EPOCHS, optimizer=OptimizerConfig(lr=RATE), seed=seed),
            teacher=trained if taught else None,
            distill=DistillConfig() if taught else None,
            quiet=True,
        )
        accuracy = evaluate(slim, eval_loader(SHORT.judging()))["accuracy"]
        row: dict[str, Any] = {"accuracy": round(100 * accuracy, 3), "flops": work.flops(slim)}
        results.add(part, name_of(base, taught), row, str(seed))
        print(f"{part}, seed {seed}: {name_of(base, taught)}: {row['accuracy']}", flush=True)


def name_of(base: str, taught: bool) -> str:
    """Return the name of a row."""
    return f"{base}, distilled" if taught else base


def _has(results: Results, part: str, base: str, taught: bool, seed: int) -> bool:
    return str(seed) in results.rows(part).get(name_of(base, taught), {})


def _begun(base: str, work: Task, trained: nn.Module, seed: int, place: Path) -> nn.Module:
    """Return the slim model with the supernet's weights, as a search finds it, or Uniform."""
    if base == UNIFORM:
        return uniform(work, trained, PERCENT, seed, place)
    sampling = cafenet.SamplingConfig(full_share=0.0, distill=DistillConfig() if base == LEARNED else None)
    result = cafenet.search(
        trained,
        work.batches(),
        work.validation_batches(),
        f"{PERCENT}%",
        epochs=SUPERNET_EPOCHS,
        finetune=False,
        trained=True,
        options=cafenet.SearchOptions(sampling=sampling),
        seed=seed,
        directory=place / base,
        quiet=True,
    )
    return result.model
