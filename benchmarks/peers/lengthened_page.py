"""The part of docs/peers.md on trainings that are five times as long."""

from typing import Any, TypeAlias

import numpy as np

from benchmarks.common.intervals import cell_of
from benchmarks.common.results_file import Results
from benchmarks.peers.lengthened import METHODS, TIMES_AS_LONG, part_of
from benchmarks.peers.tasks import BUILDERS, PERCENTS
from cafenet.common.statistics import PairedDifference, compare_paired

OURS = METHODS[-1]
Pairs: TypeAlias = list[tuple[float, float]]
HOW = f"""
## Which differences survive {TIMES_AS_LONG} times the training

`python -m benchmarks.peers --five-times`: the same widths from scratch with {TIMES_AS_LONG} times the steps, 50 epochs
of all 20,000 training images in place of 20 epochs of 10,000; the rule was written down before the runs and stands in
`benchmarks/peers/lengthened.py`. *Uniform* is one factor on channels. Test accuracy in percent, mean over the seeds of
the search; differences are paired by network and seed, with 95% intervals and their number. *Short* is the difference
after 20 epochs of the same pairs, where both were measured so; the channel-wise Uniform was not."""


def survival(results: Results) -> list[str]:
    """Return the lines of this part, none if nothing was trained that long."""
    if not any(results.rows(part_of(network, percent)) for network in BUILDERS for percent in PERCENTS):
        return []
    lines = [
        HOW,
        "",
        f"| network, budget | seeds | {' | '.join(METHODS)} |",
        "| --- | ---: |" + " ---: |" * len(METHODS),
    ]
    for percent in PERCENTS:
        lines += [row for network in BUILDERS if (row := _row(results, network, percent))]
    lines += ["", f"| {OURS} minus, over the networks | long | short |", "| --- | ---: | ---: |"]
    for percent in PERCENTS:
        lines += [row for name in METHODS if name != OURS and (row := _difference(results, percent, name))]
    return lines


def _long(results: Results, network: str, percent: int) -> dict[str, dict[str, float]]:
    """Mean accuracy over the long trainings, by method and seed of the search."""
    found: dict[str, dict[str, float]] = {}
    for name, trainings in results.rows(part_of(network, percent)).items():
        seeds = sorted({inner.split()[0] for inner in trainings})
        found[name] = {seed: _mean_of(trainings, seed) for seed in seeds}
    return found


def _mean_of(trainings: dict[str, float], seed: str) -> float:
    return float(np.mean([value for inner, value in trainings.items() if inner.split()[0] == seed]))


def _row(results: Results, network: str, percent: int) -> str:
    rows = _long(results, network, percent)
    common = sorted(set.intersection(*(set(rows.get(name, {})) for name in METHODS)))
    if not common:
        return ""
    cells = [f"{np.mean([rows[name][seed] for seed in common]):.2f}" for name in METHODS]
    return f"| {network}, {percent}% | {len(common)} | {' | '.join(cells)} |"


def long_difference(results: Results, name: str, percent: int) -> PairedDifference | None:
    """Ours minus a method after the long trainings, over all networks; None if nothing was compared."""
    return _compared(_pairs(results, name, percent)[0])


def _difference(results: Results, percent: int, name: str) -> str:
    long_pairs, short_pairs = _pairs(results, name, percent)
    return f"| {name}, {percent}% | {_cell(long_pairs)} | {_cell(short_pairs)} |" if long_pairs else ""


def _pairs(results: Results, name: str, percent: int) -> tuple[Pairs, Pairs]:
    """Accuracies of ours and of a method, network by network and seed by seed: long ones, and short ones of these."""
    long_pairs, short_pairs = [], []
    for network in BUILDERS:
        rows, short = _long(results, network, percent), _short(results, network, percent)
        for seed in sorted(set(rows.get(OURS, {})) & set(rows.get(name, {}))):
            long_pairs.append((rows[OURS][seed], rows[name][seed]))
            if seed in short.get(name, {}):
                short_pairs.append((short[OURS][seed], short[name][seed]))
    return long_pairs, short_pairs


def _short(results: Results, network: str, percent: int) -> dict[str, dict[str, float]]:
    rows: dict[str, Any] = results.rows(f"{network} {percent}%")
    again = results.rows(f"{network} {percent}% again")
    return {
        name: {
            seed: _mean_of({seed: row["scratch"], **again.get(name, {})}, seed)
            for seed, row in rows.get(name, {}).items()
        }
        for name in METHODS
    }


def _compared(pairs: Pairs) -> PairedDifference | None:
    return compare_paired(*map(list, zip(*pairs, strict=True))) if pairs else None


def _cell(pairs: Pairs) -> str:
    return f"{cell_of(_compared(pairs))} ({len(pairs)})" if pairs else ""
