"""docs/peers.md, made of what was measured."""

import inspect
from typing import Any

import numpy as np

from benchmarks.common.intervals import cell_of
from benchmarks.common.results_file import Results
from benchmarks.peers.lengthened_page import survival
from benchmarks.peers.methods import HELPERS, METHODS, NUM_SEARCHED, SPARSE_EPOCHS, SUPERNET_EPOCHS
from benchmarks.peers.tasks import BUILDERS, FINETUNE_EPOCHS, PERCENTS, SCRATCH_EPOCHS
from benchmarks.ranking.networks import NUM_VALIDATION
from cafenet.common.statistics import PairedDifference, compare_paired

OURS = "CafeNet-T"
OTHER = "CafeNet-T, other number of stages"
KEYS = {"scratch": "from scratch", "finetuned": "fine-tuned"}
NEAR = "CafeNet-T, one stage, twice from uniform"
HOW = f"""# Peers and baselines within the same FLOPs, with the same training

Made by `make bench-peers` (`python -m benchmarks.peers`, which says how to restart and share it). CIFAR-10 at 16x16:
10,000 training images, {NUM_VALIDATION:,} for validation, 5,000 for the test. FLOPs are counted by one tool for all.

- *Scratch*: the slim network with fresh weights, {SCRATCH_EPOCHS} epochs; where there are more trainings than seeds,
  the mean over them is one seed's accuracy (`--trainings`). *Fine-tuned*: {FINETUNE_EPOCHS} epochs from
  the weights that each tool gives. What these have seen before is a part of what is compared: {SCRATCH_EPOCHS} epochs
  of the original network, then {SPARSE_EPOCHS} of sparse training where the row says so, or {SUPERNET_EPOCHS} of
  CafeNet's supernet. FastNAS and the others do not train.
- A budget is a cap. CafeNet uses it up; FastNAS and Torch-Pruning stay below it, by a ninth in the worst cell.
- *Uniform* is one factor on channels. *Uniform in bins* rounds that to the bins of a search and gives what is
  left to single bins, so that it strays from one factor where bins are coarse.
- Every tool gets the original network, trained for {SCRATCH_EPOCHS} epochs, but for AutoSlim-style and rows that say
  *fresh weights*, where there are any: these train a supernet from the start.
- Supernets are trained for {SUPERNET_EPOCHS} epochs, and {NUM_SEARCHED} widths scored; two stages share both.
- {OURS} is the default of `cafenet.search` with `start="scratch"`: one stage at 50%, two at 25%. Where the slim network
  goes on from the supernet's weights, the default is two stages at 50%, too: *other number of stages* there. So the
  fine-tuned networks of that row are compared with those of the others. At 25% it is one stage.
- Trends of the seeds 0 to 2 are of revision 36db0cc or before, but for {OURS} on the MobileNetV2 at 50% and *two stages
  of 300 widths*: there, the best width of a trend was sought by exchanges between two groups alone.
- Seeds from 3 on were added for {OURS} and FastNAS, one after another, since three did not decide between them; the
  differences were looked at in between, which makes intervals a little too narrow.
- Search time is the median of CPU time on one core, without searches that were interrupted or that found the scores of
  another one; a supernet that several searches share is counted where it was trained.
- Mean and standard deviation over seeds. Differences are paired, with 95% intervals, bold where they do not hold zero;
  one seed says nothing. Of twenty differences that are none, one is expected to be bold. Cells that are not there yet
  were not measured."""


WHY = """
## What the differences rest on

- The number of stages at 50% was chosen when the rows of the VGG and the ResNet, seeds 0 to 2, were known, and the same
  rows are compared with the others here. {afterwards}
- At 50%, one stage that may go four times from uniform widths ends higher from scratch than two that may go twice each,
  and lower from the supernet's weights: what scores well with weights that are there already need not learn well from
  the start. (Without the MobileNetV2, whose one stage was searched by a later revision, the former is still clear, the
  latter not.) At 25%, nothing is clear between one stage and two that go as far in all; two are clearly ahead of one
  that goes twice, from the supernet's weights. So the default follows the budget and what the slim network begins with.
- At 50%, {ours} and FastNAS find networks of much the same kind on the ResNet: trunks that are nearly full, and blocks
  that are narrow inside. On the VGG, {ours} keeps the first two layers whole, which FastNAS narrows.
- Trainings are noisy, so networks that were found were trained again where the table shows more trainings than seeds
  (`--trainings`). Random at 25%, AutoSlim-style and Torch-Pruning without sparse training have one each, and a lucky
  one weighs more.
- CafeNet-E and -R have one training a seed, where {ours} has more, and supernets that were trained anew with the same
  options, but for the seeds 1 and 2 of the MobileNetV2 at 50%. *Losses farther apart* is of one seed, where differences
  of a point are the supernet's as much as its own.
- What ranks widths better need not find better ones. A trend of losses, of widths that lie farther apart, ranks the
  labelled widths of one network of [Ranking](ranking.md) better than the default's. *Losses farther apart* measures it
  here, on one seed: no gain is to be seen, and no clear loss but for MobileNetV2 at 25%, which is 3 points lower
  fine-tuned. BCNet's bilateral sharing ranks widths clearly better than the fixed one over the two networks there, and
  what it finds at 50% (*bilateral*) ends a little lower from scratch, for about twice the time of the search."""


PROTOCOLS = f"""
## Fine-tuned minus from scratch

Points of accuracy that {FINETUNE_EPOCHS} epochs from the weights that a tool gives end above {SCRATCH_EPOCHS} epochs
from fresh ones, over all networks, with 95% intervals and the number of networks and seeds. *{SCRATCH_EPOCHS} epochs*
(`--long`): from these weights just as from fresh ones, with the same epochs and learning rate.
"""
CHANGES = """
## What the last changes of the default were worth

Points of accuracy, with 95% intervals and the number of pairs. Two stages go on from a search at half the way to the
budget; they share the epochs and the number of scored widths with one. In all stages together a group may become four
times narrower or wider than in uniform widths, in *one stage, twice from uniform* only twice. *Before*: one stage, a
channel's importance was the size of all of its weights, and the pick might lie four times from uniform widths; these
rows were measured by the same command at revision eace6e3, which called r=1 `CafeNet-T` and r=0 `CafeNet-T, r=0`. Since
then, where channels are normalised, only the weights that read them count.
"""


def markdown(results: Results) -> str:
    """The page."""
    lines = [HOW]
    for percent in PERCENTS:
        for network in BUILDERS:
            lines += _table(results, network, percent)
        lines += _overall(results, percent)
    lines += survival(results)
    lines += [WHY.format(ours=OURS, afterwards=_afterwards(results))]
    lines += [*_noise(results), *_protocols(results), *_changes(results)]
    lines += ["", "Lines of user code, counted in `benchmarks/peers/methods.py` with the helpers that they call:", ""]
    lines += [f"- {name}: {_num_lines(method)}" for name, method in METHODS.items()]
    return "\n".join(lines) + "\n"


def found_by(results: Results, network: str, percent: int, when: str = "") -> dict[str, dict[str, Any]]:
    """Rows by method and seed, `scratch` the mean over all trainings of what was found."""
    rows: dict[str, dict[str, Any]] = results.rows(f"{network} {percent}%{when}")
    again = results.rows(f"{network} {percent}%{when} again")
    for name, seeds in rows.items():
        for seed, row in seeds.items():
            others = [value for inner, value in again.get(name, {}).items() if inner.split()[0] == seed]
            row["all"] = [row["scratch"], *others]
            row["scratch"] = float(np.mean(row["all"]))
    return rows


def difference_from(results: Results, name: str, percent: int, key: str) -> PairedDifference | None:
    """Ours minus a method over all networks, `scratch` or `finetuned`; None if nothing was compared."""
    return _compared([found_by(results, network, percent) for network in BUILDERS], name, percent, key)


def _table(results: Results, network: str, percent: int) -> list[str]:
    rows = found_by(results, network, percent)
    original = results.rows(f"{network} original").get("Original", {})
    if not rows:
        return []
    full = next(iter(original.values()))["flops"] if original else None
    columns = ["method", "seeds", "trainings", "FLOPs", "scratch", "fine-tuned", "search, s"]
    lines = ["", f"## {network} at {percent}%", ""]
    columns += [f"{OURS} minus it, scratch", f"{_ours(percent, 'finetuned')} minus it, fine-tuned"]
    lines += [f"| {' | '.join(columns)} |", "| --- |" + " ---: |" * 8]
    if original:
        num = len(original)
        lines.append(f"| Original | {num} | {num} | {full:,} | {_spread(original, 'scratch')} | | | | |")
    lines += [f"| {' | '.join(_cells(rows, name, percent, full))} |" for name in METHODS if name in rows]
    return lines


def _cells(rows: dict[str, dict[str, Any]], name: str, percent: int, full: int | None) -> list[str]:
    seeds = rows[name]
    flops = np.mean([row["flops"] for row in seeds.values()])
    seconds = [row["search_seconds"] for row in seeds.values() if row["search_seconds"] is not None]
    return [
        name,
        str(len(seeds)),
        str(sum(len(row["all"]) for row in seeds.values())),
        f"{flops:,.0f}" + (f" ({flops / full:.1%})" if full else ""),
        _spread(seeds, "scratch"),
        _spread(seeds, "finetuned"),
        f"{np.median(seconds):.0f}" if seconds else "",
        *(cell_of(_compared([rows], name, percent, key)) for key in KEYS),
    ]


def _overall(results: Results, percent: int) -> list[str]:
    """Compare two methods over all networks that both were measured on, with a pair for every network and seed."""
    tables = [found_by(results, network, percent) for network in BUILDERS]
    lines = ["", f"## {OURS} minus the others at {percent}%, mean over networks", ""]
    lines += [
        f"Every network and seed is a pair; their number in brackets. Fine-tuned it is {_ours(percent, 'finetuned')}."
    ]
    lines += ["", "| method | scratch | fine-tuned |", "| --- | ---: | ---: |"]
    for name in METHODS:
        found = [_compared(tables, name, percent, key) for key in KEYS]
        cells = [f"{cell_of(each)} ({each.num_pairs})" if each else "" for each in found]
        if any(cells):
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines + _in_words(tables, percent)


def _afterwards(results: Results) -> str:
    """The comparison with FastNAS on what was measured after the choice, as a sentence."""
    both = []
    for network in BUILDERS:
        rows = found_by(results, network, 50)
        names = [name for name in (OURS, "ModelOpt FastNAS") if name in rows]
        both.append(
            [{seed: rows[name][seed] for seed in rows[name] if _is_afterwards(network, seed)} for name in names]
        )
    found = _paired([each for each in both if len(each) == 2], "scratch")
    if found is None:
        return ""
    return (
        f"On the {found.num_pairs} pairs that were measured afterwards (the MobileNetV2, and seeds from 3 on), "
        f"{OURS} minus FastNAS is {cell_of(found)}."
    )


def _is_afterwards(network: str, seed: str) -> bool:
    return network == "mobilenet_v2" or int(seed) >= 3


def _noise(results: Results) -> list[str]:
    """Differences between trainings of the same widths."""
    lines = [
        "",
        "Standard deviation between trainings from scratch of the same widths, with the number of trainings:",
        "",
    ]
    lines += [
        f"| network | {' | '.join(f'{percent}%' for percent in PERCENTS)} |",
        "| --- |" + " ---: |" * len(PERCENTS),
    ]
    for network in BUILDERS:
        cells = []
        for percent in PERCENTS:
            rows = [row["all"] for seeds in found_by(results, network, percent).values() for row in seeds.values()]
            rows = [trainings for trainings in rows if len(trainings) > 1]
            num_free = sum(len(trainings) - 1 for trainings in rows)
            squares = sum(float(np.var(trainings)) * len(trainings) for trainings in rows)
            cells.append(f"{(squares / num_free) ** 0.5:.2f} ({sum(map(len, rows))})" if num_free else "")
        lines.append(f"| {network} | {' | '.join(cells)} |")
    return lines


def _protocols(results: Results) -> list[str]:
    """Comparison of a few epochs from the weights that a tool gives with many from fresh ones."""
    lines = [PROTOCOLS, f"| method | {' | '.join(f'{percent}%' for percent in PERCENTS)} |"]
    lines.append("| --- |" + " ---: |" * len(PERCENTS))
    for name in METHODS:
        cells = []
        for percent in PERCENTS:
            rows = [found_by(results, network, percent).get(name, {}) for network in BUILDERS]
            pairs = [(row["finetuned"], row["scratch"]) for seeds in rows for row in seeds.values()]
            found = compare_paired(*map(list, zip(*pairs, strict=True))) if all(rows) else None
            cells.append(f"{cell_of(found)} ({len(pairs)})" if found else "")
        if any(cells):
            lines.append(f"| {name} | {' | '.join(cells)} |")
    cells = [_long(results, percent) for percent in PERCENTS]
    return [
        *lines,
        *([f"| CafeNet-T, two stages, {SCRATCH_EPOCHS} epochs | {' | '.join(cells)} |"] if any(cells) else []),
    ]


def _long(results: Results, percent: int) -> str:
    """Ours trained from its own weights as long as from scratch, minus that."""
    pairs = []
    for network in BUILDERS:
        name = _ours(percent, "finetuned")
        rows = found_by(results, network, percent).get(name, {})
        long = results.rows(f"{network} {percent}% long").get(name, {})
        pairs += [(accuracy, rows[seed]["scratch"]) for seed, accuracy in long.items()]
    return f"{cell_of(compare_paired(*map(list, zip(*pairs, strict=True))))} ({len(pairs)})" if pairs else ""


def _changes(results: Results) -> list[str]:
    """Gains by changes of the default, with a pair for every network and seed."""
    columns = [(percent, key) for percent in PERCENTS for key in KEYS]
    titles = " | ".join(f"{percent}%, {key.replace('finetuned', 'fine-tuned')}" for percent, key in columns)
    lines = [CHANGES, f"| difference | {titles} |", "| --- |" + " ---: |" * len(columns)]
    for label, *both in (
        ("one stage (50%) or two (25%) - the other number", ("", OURS), ("", OTHER)),
        ("the same - one stage, twice from uniform", ("", OURS), ("", NEAR)),
        ("the other number - one stage, twice from uniform", ("", OTHER), ("", NEAR)),
        ("one stage, twice from uniform - before, both r=0", ("", NEAR), (" before", "r=0")),
        ("r=0 - r=1, both before", (" before", "r=0"), (" before", "r=1")),
    ):
        cells = []
        for percent, key in columns:
            rows = [[found_by(results, each, percent, when).get(name, {}) for when, name in both] for each in BUILDERS]
            found = _paired(rows, key)
            cells.append(f"{cell_of(found)} ({found.num_pairs if found else 0})")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def _ours(percent: int, key: str) -> str:
    """Our row with the stages that a search takes by default for a slim network that is trained so."""
    return OTHER if key == "finetuned" and percent >= 50 else OURS


def _compared(tables: list[dict[str, Any]], name: str, percent: int, key: str) -> PairedDifference | None:
    """Ours minus a method, paired by network and seed; None for our own row."""
    ours = _ours(percent, key)
    return None if name == ours else _paired([[rows.get(each, {}) for each in (ours, name)] for rows in tables], key)


def _paired(both: list[list[dict[str, Any]]], key: str) -> PairedDifference | None:
    """The first rows minus the second ones, network by network, of the seeds that both have."""
    pairs = [(one[seed][key], other[seed][key]) for one, other in both for seed in sorted(set(one) & set(other))]
    return compare_paired(*map(list, zip(*pairs, strict=True))) if pairs else None


def _in_words(tables: list[dict[str, Any]], percent: int) -> list[str]:
    """Whom ours is ahead of by the paired interval, on methods that all networks have."""
    lines = []
    for key, how in KEYS.items():
        ours = _ours(percent, key)
        said: dict[str, list[str]] = {"ahead of": [], "not clearly ahead of": [], "behind": []}
        for name in (name for name in METHODS if not name.startswith("CafeNet")):
            if all(ours in rows and name in rows for rows in tables):
                found = _compared(tables, name, percent, key)
                assert found is not None
                place = "not clearly ahead of" if not found.is_clear else "ahead of" if found.mean > 0 else "behind"
                said[place].append(name.replace(", ", " with "))
        parts = [f"{place} {' and '.join(names)}" for place, names in said.items() if names]
        if parts:
            lines += ["", f"At {percent}%, {how}, {ours} is {'; '.join(parts)}, over all networks."]
    return lines


def _spread(seeds: dict[str, Any], key: str) -> str:
    values = [row[key] for row in seeds.values()]
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else "")


def _num_lines(function: Any) -> int:
    """Count the lines of a function's body, without the documentation, and of the helpers that it calls."""
    source = inspect.getsource(function)
    lines = [line.strip() for line in source[source.index(") ->") :].splitlines()[1:]]
    helpers = [each for each in HELPERS if f"{each.__name__}(" in source and each is not function]
    own = sum(1 for line in lines if line and not line.startswith('"""'))
    return own + sum(map(_num_lines, helpers))
