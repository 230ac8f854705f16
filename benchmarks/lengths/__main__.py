"""The division of a job's epochs between the supernet and the slim model, for a network that comes trained.

    python -m benchmarks.lengths                   # about an hour on one core for a seed; a second start continues
    python -m benchmarks.lengths --long            # everything five times as long; about as much for one seed
    python -m benchmarks.lengths --distilled --seeds 2   # fine-tuning with a teacher; the rule is in distilled.py

The rule, written down before the first run:

- the three networks of `benchmarks/peers`, trained for 20 epochs on 10,000 images of CIFAR-10 at 16x16, at a quarter of
  their FLOPs; 4,000 other images are the validation data of the searches, and 6,000 that nothing else uses judge;
- one call of `cafenet.search` for each way to divide 20 epochs: 10 of the supernet and 10 of the slim model, or 5 and
  15. Everything else has its default. Each search makes its own Uniform with the same fine-tuning;
- *Uniform, 20 epochs*: one factor on the channels of all layers, the most important channels, fine-tuned for all of the
  20 epochs at the same rate;
- ways that came later, with a rule of their own before their first run: 5 and 15 epochs with a half or a quarter of the
  differences between groups believed (`Trend(trust=...)`), since widths that are trained longer are better if they
  stay closer to uniform (docs/channel_bench.md). The trust whose slim models are best in the mean becomes the default
  for a model that comes trained;
- the division whose slim models are better on the judging images, as the mean over networks and seeds, becomes the
  default. The networks of `benchmarks/newcomer` and the demo are kept out of this choice.

The long regime (`--long`) has a rule of its own, written down before its first run: five times as many steps in every
training, of the original network, the supernet and the slim model, on 16,000 images; the 5,000 test images judge. The
ways are 5 and 15 epochs (that is, 15.6 and 46.9) with all, half or none of the differences believed, beside Uniform
with the same fine-tuning. If less trust than 1 gives better slim models in the mean over networks and seeds, by a
paired interval that does not hold zero, `effort="thorough"` takes it.

Results go to benchmarks/lengths/results.json after every search, and docs/lengths.md is made of them.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import nn

import cafenet
from benchmarks.common.places import ROOT, kept_results, page_of
from benchmarks.common.results_file import Results
from benchmarks.lengths.distilled import measure_distillation
from benchmarks.lengths.lengths import EPOCHS, SHORT, Regime, long
from benchmarks.lengths.page import markdown
from benchmarks.peers.methods import prepared, uniform
from benchmarks.peers.tasks import BUILDERS, Task
from cafenet.data import ImageData, eval_loader
from cafenet.scoring.evaluation import evaluate
from cafenet.supernet.train import TrainConfig
from cafenet.training.optimizers import OptimizerConfig

PERCENT = 25
WAYS = {
    "10 + 10": (10, 1.0),
    "5 + 15": (5, 1.0),
    "5 + 15, half trust": (5, 0.5),
    "5 + 15, quarter trust": (5, 0.25),
    "5 + 15, no trust": (5, 0.0),
}
"""Epochs of the supernet in the short regime, and the trust in differences between groups."""
LONG_WAYS = ["5 + 15", "5 + 15, half trust", "5 + 15, no trust"]
SHORT_WAYS = [name for name in WAYS if name != "5 + 15, no trust"]
RATE = 0.05
"""Rate of both trainings, which is the default for a trained network with batch norm."""
UNIFORM = f"Uniform, {EPOCHS} epochs"


def main() -> None:
    """Measure what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=sorted(BUILDERS), nargs="+", default=sorted(BUILDERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--long", action="store_true", help="the long regime")
    parser.add_argument("--distilled", action="store_true", help="only fine-tuning with and without a teacher")
    parser.add_argument("--ways", choices=list(WAYS), nargs="+", metavar="WAY", help="those of the regime's rule")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "bench-lengths")
    parser.add_argument("--output", type=Path, default=kept_results("lengths"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(options.output)
    regime = long() if options.long else SHORT
    ways = options.ways or (LONG_WAYS if options.long else SHORT_WAYS)
    for seed in range(options.seeds):
        for name in options.network:
            place = options.cache / f"{name}{regime.suffix}" / f"seed-{seed}"
            if options.distilled:
                measure_distillation(results, regime.work(name), seed, place)
                continue
            _measure(results, regime, regime.work(name), seed, ways, place)
    page_of("lengths", options.output).write_text(markdown(results), encoding="utf-8")


def _measure(results: Results, regime: Regime, work: Task, seed: int, ways: list[str], place: Path) -> None:
    """Measure one network with one seed."""
    part = work.name + regime.suffix
    trained = prepared(work, seed, regime.original_epochs, place / "original")
    judging = regime.judging()
    if regime is SHORT and str(seed) not in results.rows(part).get(UNIFORM, {}):
        config = TrainConfig(epochs=EPOCHS, optimizer=OptimizerConfig(lr=RATE), seed=seed)
        slim = uniform(work, trained, PERCENT, seed, place)
        slim = cafenet.train_model(slim, work.example, work.batches(), config, quiet=True)
        _add(results, part, UNIFORM, _row(work, slim, judging), seed)
    for way in ways:
        name = f"CafeNet, {way}"
        if str(seed) not in results.rows(part).get(name, {}):
            for each, row in _searched(regime, work, trained, way, seed, place).items():
                _add(results, part, each.format(name), row, seed)


def _searched(
    regime: Regime, work: Task, trained: nn.Module, way: str, seed: int, place: Path
) -> dict[str, dict[str, Any]]:
    """Return the rows of the slim model and, once for each length, of the original and of Uniform beside it."""
    epochs, trust = WAYS[way]
    result = cafenet.search(
        trained,
        work.batches(),
        work.validation_batches(),
        f"{PERCENT}%",
        epochs=regime.of(epochs),
        finetune_epochs=regime.of(EPOCHS - epochs),
        trained=True,
        baseline=trust == 1.0,
        options=cafenet.SearchOptions(algorithm=cafenet.Trend(trust=trust)),
        test_data=eval_loader(regime.judging()),
        seed=seed,
        directory=place / way,
        quiet=True,
    )
    assert result.gain is not None
    rows = {}
    for name, model in zip(("{}", "Uniform beside {}"), result.gain.models[1:], strict=False):
        assert model.test_score is not None
        rows[name] = {"accuracy": round(100 * model.test_score, 3), "flops": model.flops}
    rows["{}"]["widths"] = dict(result.widths)
    if trust == 1.0 and result.gain.before.test_score is not None:
        rows["Original"] = {"accuracy": round(100 * result.gain.before.test_score, 3)}
    return rows


def _row(work: Task, model: nn.Module, judging: ImageData) -> dict[str, Any]:
    accuracy = evaluate(model, eval_loader(judging))["accuracy"]
    return {"accuracy": round(100 * accuracy, 3), "flops": work.flops(model)}


def _add(results: Results, part: str, name: str, row: dict[str, Any], seed: int) -> None:
    results.add(part, name, row, str(seed))
    print(f"{part}, seed {seed}: {name}: {row['accuracy']}", flush=True)


if __name__ == "__main__":
    main()
