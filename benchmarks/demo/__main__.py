"""`make demo`: a trained network at a quarter of its FLOPs, beside the baselines that a sceptic asks for.

    python -m benchmarks.demo                  # a directory runs/trained-demo with the report; a second start continues
    python -m benchmarks.demo --readme         # writes the results and the README's table, too
    python -m benchmarks.demo --random 10      # how much widths matter here: random ones, fine-tuned alike

The rule, written down before the first run:

- the network: 3x3 convolutions of 16, 32, 32, 64 and 64 channels, doubled wherever the image is halved, as people
  choose widths by hand; trained here for 40 epochs on 5,400 of the 6,000 embedded images of Fashion-MNIST, averaged to
  14x14 so that all of it takes less than three minutes on two cores;
- one call `cafenet.search(model, train, val, "25%", test_data=test)` with the defaults; `val` are the other 600 images;
- the final training is done with three seeds, for CafeNet's widths and for both baselines:
  Uniform (one factor on the channels of all layers, the most important channels) with the same fine-tuning, and Uniform
  fine-tuned for as many epochs as CafeNet's supernet and fine-tuning had together, at the supernet's rate;
- figures are accuracies on the 2,000 test images, which choose nothing, and CafeNet minus each baseline, paired by
  seed, with 95% intervals. There is one supernet and one search: the intervals are about the final training alone.

A first run had the defaults of its time, 5 epochs of fine-tuning at a rate of 0.02: CafeNet 82.90%, Uniform 81.50% with
the same and 84.58% with 15 epochs in all. Three other seeds of fine-tuning, scored on the validation images, said that
more epochs and the supernet's rate of 0.05 serve CafeNet and Uniform better. So the defaults were changed, and all was
done again. Distillation from the original helped neither there, so it is no default.

A second run had an original that was trained for 10 epochs. Slim models were better than it, so that widths could not
matter much: 82.20%, Uniform 84.30% and CafeNet 84.45%. The training images said that it had learned too little (84% of
them after 10 epochs, 88% after 20 and 91% after 40), so it is now trained for 40; nothing else was changed.

The third run, the present one, asked why there is still no gain: `--random` fine-tunes random widths of the same FLOPs.
"""

import argparse
import re
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from torch import nn

import cafenet
from benchmarks.common.images import shrunk
from benchmarks.common.intervals import cell_of
from benchmarks.common.places import ROOT, kept_results
from benchmarks.common.results_file import Results
from cafenet.common.statistics import compare_paired
from cafenet.data import Augmentation, eval_loader, fashion_mnist, hold_out, train_loader
from cafenet.models.plain_cnn import plain_cnn
from cafenet.pipeline.baseline import uniform_cut
from cafenet.pipeline.lengths import Given
from cafenet.searching.budget import parse_budget
from cafenet.searching.feasible import Feasible
from cafenet.space.bins import balanced_rows
from cafenet.space.importance import sort_by_importance
from cafenet.supernet.build import SupernetConfig, build_bins

CHANNELS, BUDGET, EPOCHS, SEEDS = (16, 32, 32, 64, 64), "25%", 40, (0, 1, 2)
BEFORE, SHORT, LONG, OURS = "Original", "Uniform, same fine-tuning", "Uniform, as many epochs in all", "CafeNet"
README, PART, OUTPUT, RANDOM = ROOT / "README.md", "fashion", "output", "random"
SPREAD = 0.35
"""Standard deviation of the logarithms of the groups' shares in random widths."""
SIZE = 14
EXAMPLE = torch.zeros(1, 1, SIZE, SIZE)


def main() -> None:
    """Do the demo, print its table and, on request, keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "runs" / "trained-demo")
    parser.add_argument("--readme", action="store_true", help="write results.json and the table of the README")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="only fine-tune N random widths")
    options = parser.parse_args()
    if options.random:
        keep_random(random_widths(options.output, options.random))
        return
    start, cpu = time.perf_counter(), time.process_time()
    rows, printed = demo(options.output)
    seconds = {"seconds": round(time.perf_counter() - start), "cpu_seconds": round(time.process_time() - cpu)}
    print(f"\n{table(rows)}\n\n{seconds['seconds']} s, of which {seconds['cpu_seconds']} s on the CPU")
    if options.readme:
        keep(rows, printed, seconds)


def data() -> tuple[Any, Any, Any]:
    """Return training, validation and test images."""
    sets = fashion_mnist()
    part, held = hold_out(shrunk(sets.train, SIZE))
    train = train_loader(part, 64, Augmentation(padding=1, flip=True))
    return train, eval_loader(held), eval_loader(shrunk(sets.test, SIZE))


def original(place: Path, train: Any) -> nn.Module:
    """Return the trained network that the demo begins with."""
    torch.manual_seed(0)
    config, fresh = cafenet.TrainConfig(epochs=EPOCHS), plain_cnn(channels=CHANNELS)
    return cafenet.train_model(fresh, EXAMPLE, train, config, directory=place / "original", title="the model to shrink")


def demo(place: Path) -> tuple[dict[str, dict[str, Any]], str]:
    """Return FLOPs, parameters and test accuracies of every model, and what the search printed.

    What `place` holds is not done again.
    """
    train, val, test = data()
    model = original(place, train)
    searched = {"budget": BUDGET, "test_data": test, "directory": place / "search"}
    result = cafenet.search(model, train, val, **searched)
    print(f"\n{result}\nThe report is {result.report()}\n")

    assert result.gain is not None
    assert result.gain.baseline is not None
    # The search has done the first seed's trainings.
    first = {OURS: result.gain.found, SHORT: result.gain.baseline}

    begun = cafenet.search(model, train, val, **searched, finetune=False, quiet=True).model
    space = cafenet.trace(model, EXAMPLE)
    uniform = uniform_cut(space, model, parse_budget(BUDGET, space), SupernetConfig(), by_importance=True)
    supernet, final = Given(None, None, None, None, "normal", "supernet", 0).trainings(is_trained=True)
    assert final is not None
    longer = replace(supernet, epochs=supernet.epochs + final.epochs)
    rows = {BEFORE: _row([model], test)}
    for name, slim, training in ((SHORT, uniform, final), (LONG, uniform, longer), (OURS, begun, final)):
        seeds = SEEDS[1:] if name in first else SEEDS
        rows[name] = _row([_tuned(slim, train, training, seed, name, place) for seed in seeds], test)
        if name in first:
            rows[name]["accuracy"].insert(0, round(100 * (first[name].test_score or 0.0), 2))
    return rows, str(result)


def random_widths(place: Path, number: int) -> list[float]:
    """Return the test accuracies of random widths within the budget, cut and fine-tuned as Uniform is."""
    train, _, test = data()
    model = original(place, train)
    space = cafenet.trace(model, EXAMPLE)
    budget = parse_budget(BUDGET, space)
    feasible = Feasible(build_bins(space, SupernetConfig()), {"flops": space.flops, "params": space.params}, budget)
    final = Given(None, None, None, None, "normal", "supernet", 0).trainings(is_trained=True)[1]
    assert final is not None
    rng, ordered, found = np.random.default_rng(0), sort_by_importance(space, model), []
    for seed in range(number):
        near = balanced_rows(feasible.num_bins, SPREAD * rng.standard_normal(feasible.num_bins.size))
        widths = feasible.bins.widths(near[np.argmax(feasible.usage(near) <= 1.0)])
        slim = space.extract(widths.tolist(), model=ordered)
        tuned = _tuned(slim, train, final, seed, f"random widths {'-'.join(map(str, widths))}", place)
        found.append(round(100 * cafenet.evaluate(tuned, test)["accuracy"], 2))
        print(f"{widths.tolist()}: {found[-1]}%", flush=True)
    return found


def keep_random(found: list[float]) -> None:
    """Write the accuracies of random widths beside the results of the demo."""
    results = Results(kept_results("demo"))
    results.add(RANDOM, "random widths, same fine-tuning", {"accuracy": found})
    print(f"{len(found)} random widths: {mean(found):.2f}% ± {stdev(found):.2f}, the best {max(found):.2f}%")


def _tuned(slim: nn.Module, train: Any, config: cafenet.TrainConfig, seed: int, name: str, place: Path) -> nn.Module:
    """Fine-tune a model with a seed."""
    kept = place / "finals" / f"{name.replace(',', '').replace(' ', '-')}-{seed}"
    config = replace(config, seed=seed)
    return cafenet.train_model(slim, EXAMPLE, train, config, directory=kept, title=f"{name}, seed {seed}")


def _row(models: list[nn.Module], test: Any) -> dict[str, Any]:
    space = cafenet.trace(models[0], EXAMPLE)
    scores = [round(100 * cafenet.evaluate(model, test)["accuracy"], 2) for model in models]
    return {"flops": int(space.flops()), "params": int(space.params()), "accuracy": scores}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return the rows as a table, with what CafeNet is ahead of each baseline."""
    lines = ["| model | FLOPs | parameters | test accuracy | CafeNet minus it, in points |", "| --- |" + " ---: |" * 4]
    for name, row in rows.items():
        values = row["accuracy"]
        spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
        found = compare_paired(rows[OURS]["accuracy"], values) if name in (SHORT, LONG) else None
        cells = (f"{row['flops'] / 1e6:.2f}M", f"{row['params'] / 1e3:.1f}K", f"{mean(values):.2f}%{spread}")
        lines.append(f"| {' | '.join((name, *cells, cell_of(found)))} |")
    return "\n".join(lines)


def keep(rows: dict[str, dict[str, Any]], printed: str, seconds: dict[str, int]) -> None:
    """Write the results, and the two parts of the README that are made of them."""
    others = Results(kept_results("demo")).rows(RANDOM)
    results = Results(kept_results("demo"), fresh=True)
    for name, row in others.items():
        results.add(RANDOM, name, row)
    for name, row in rows.items():
        results.add(PART, name, row)
    results.add(OUTPUT, "printed", printed)
    results.add(OUTPUT, "time", seconds)
    README.write_text(with_results(README.read_text(encoding="utf-8"), results), encoding="utf-8")
    print(f"{results.path} and {README} written")


def with_results(text: str, results: Results) -> str:
    """Return a page with the table and the output of the search, each between its two comments."""
    said = results.rows(OUTPUT)["printed"].split("\n\n")[0].splitlines()
    wrapped = [line for each in said for line in (textwrap.wrap(each, 100) if each[:1].strip() else [each])]
    parts = {"table": table(results.rows(PART)), "printed": "\n".join(["```text", *wrapped, "```"])}
    for name, content in parts.items():
        pattern = rf"(<!-- demo: {name} -->\n).*?(<!-- end -->)"
        text = re.sub(pattern, lambda m, content=content: f"{m[1]}\n{content}\n\n{m[2]}", text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    main()
