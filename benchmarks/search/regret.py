"""The table's results: mean regrets, and differences of paired runs with their intervals."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.search.table import CHECKPOINTS, MODES, best_seen, num_fitting, oracle, read_table

PERCENTS = (75, 50, 25)
OURS = ("Evolution", "Random", "Greedy", "Trend")
PEERS = ("Optuna NSGA-II", "Optuna TPE")
Rows = dict[str, Any]


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95% t interval."""

    mean: float
    low: float
    high: float
    num_seeds: int

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def values(
    rows: Rows, mode: str, percent: int, name: str, seed: str, *, counts_all: bool = False
) -> list[float | None]:
    """Judged accuracies at the checkpoints."""
    found: list[float | None] = rows[f"{mode} {percent}% {name}"][seed][1 if counts_all else 0]
    return found


def difference(
    rows: Rows, mode: str, percent: int, peer: str, place: int, *, counts_all: bool = False, name: str = "Evolution"
) -> Interval | None:
    """The peer's regret less that of ours at a checkpoint, over the seeds that both were run with; above 0 we win."""
    ours, theirs = rows.get(f"{mode} {percent}% {name}", {}), rows.get(f"{mode} {percent}% {peer}", {})
    pairs = []
    for seed in theirs.keys() & ours.keys():
        own = values(rows, mode, percent, name, seed)[place]
        other = values(rows, mode, percent, peer, seed, counts_all=counts_all)[place]
        if own is not None and other is not None:
            pairs.append(own - other)
    if len(pairs) < 3:
        return None
    center, error = float(np.mean(pairs)), float(np.std(pairs, ddof=1)) / len(pairs) ** 0.5
    reach = float(stats.t.ppf(0.975, len(pairs) - 1)) * error
    return Interval(center, center - reach, center + reach, len(pairs))


def regret_tables(rows: Rows) -> Iterator[str]:
    """Mean regret of every algorithm, a table for each mode and budget."""
    table = read_table()
    for mode in MODES:
        for percent in PERCENTS:
            best, (fitting, in_band) = oracle(table, mode, percent), num_fitting(table, percent)
            note = f"**{mode}, {percent}% of FLOPs** ({fitting:,} widths fit, {in_band:,} of them use 95% or more, "
            note += f"as Evolution and Random propose; the best has {best:.2f}%"
            if mode == "noisy":
                note += f"; trying all of them would leave a regret of {best - best_seen(table, mode, percent):.3f}"
            yield note + ")"
            lines = []
            for name in (*OURS, *PEERS):
                runs = rows.get(f"{mode} {percent}% {name}", {})
                if runs:
                    means = _mean_regrets([run[0] for run in runs.values()], best)
                    lines.append([name, str(len(runs)), *means, *["-"] * (len(CHECKPOINTS) - len(means))])
            yield _table(["", "seeds", *map(str, CHECKPOINTS)], lines)


def _mean_regrets(runs: list[list[float | None]], best: float) -> list[str]:
    columns = zip(*runs, strict=True)
    known = [[best - value for value in column if value is not None] for column in columns]
    return [f"{np.mean(each):.3f}" if len(each) > len(runs) / 2 else "-" for each in known]


def difference_tables(rows: Rows) -> Iterator[str]:
    """Paired differences at each checkpoint, and in words where ours is not better."""
    yield "Mean and 95% interval over seeds (t); above 0 Evolution is better. Bold: the interval holds 0 or lies below."
    stops = [stop for stop in CHECKPOINTS if stop <= 200]
    for mode in MODES:
        lines = []
        for percent in PERCENTS:
            for peer in PEERS:
                found = [difference(rows, mode, percent, peer, place) for place in range(len(stops))]
                if known := [each for each in found if each is not None]:
                    cells = ["-" if each is None else _marked(each) for each in found]
                    lines.append([f"{percent}%", peer, str(known[-1].num_seeds), *cells])
        yield f"**{mode}**"
        yield _table(["budget", "peer", "seeds", *map(str, stops)], lines)
    yield from _shortfalls(rows)


def _marked(interval: Interval) -> str:
    return str(interval) if interval.low > 0 else f"**{interval}**"


def _shortfalls(rows: Rows) -> Iterator[str]:
    for mode in MODES:
        worse, open_ = [], []
        for percent, peer, place in _cells():
            found = difference(rows, mode, percent, peer, place)
            if found is not None and found.low <= 0:
                where = f"{peer.removeprefix('Optuna ')} at {percent}% and {CHECKPOINTS[place]} evaluations"
                (worse if found.high < 0 else open_).append(where)
        yield f"Evolution is worse, {mode}: {'; '.join(worse) or 'nowhere'}."
        yield f"No difference shown, {mode}: {'; '.join(open_) or 'nowhere'}."


def _cells() -> Iterator[tuple[int, str, int]]:
    for percent in PERCENTS:
        for peer in PEERS:
            for place in (place for place, stop in enumerate(CHECKPOINTS) if stop <= 200):
                yield percent, peer, place


def suggestion_table(rows: Rows) -> str:
    """Differences at 40 and 200 if infeasible and repeated suggestions count, and the number of these."""
    lines = []
    for mode in MODES:
        for percent in PERCENTS:
            for peer in PEERS:
                runs = rows.get(f"{mode} {percent}% {peer}", {}).values()
                at = [difference(rows, mode, percent, peer, CHECKPOINTS.index(n), counts_all=True) for n in (40, 200)]
                if runs:
                    per_evaluation = np.mean([counts[1] / counts[0] for _, _, counts in runs])
                    cells = ["-" if each is None else _marked(each) for each in at]
                    lines.append([mode, f"{percent}%", peer, f"{per_evaluation:.1f}", *cells])
    return _table(["", "budget", "peer", "suggestions an evaluation", "difference at 40", "at 200"], lines)


def regret_claims(rows: Rows) -> Iterator[list[str]]:
    """Noise-free: no worse than Optuna's samplers anywhere, and better at 200 evaluations."""
    cells = {cell: difference(rows, "noise-free", *cell[:2], cell[2]) for cell in _cells()}
    known = {cell: found for cell, found in cells.items() if found is not None}
    if not known:
        return
    least = min(found.num_seeds for found in known.values())
    worse = [f"{peer} {percent}% at {CHECKPOINTS[place]}" for (percent, peer, place), f in known.items() if f.high < 0]
    measured = f"worse by the paired interval in {len(worse)} of {len(known)} cells{': ' if worse else ''}"
    so_far = "" if len(known) == len(cells) else f" so far ({len(known)} of {len(cells)} cells measured)"
    yield [
        "Evolution: noise-free regret no worse than Optuna's at equal evaluations",
        f"{measured}{', '.join(worse)} (n >= {least} seeds)",
        f"**no**{so_far}" if worse else f"yes{so_far}",
    ]
    last = {cell: found for cell, found in known.items() if CHECKPOINTS[cell[2]] == 200}
    better = sum(found.low > 0 for found in last.values())
    gains = ", ".join(f"{peer.removeprefix('Optuna ')} {percent}%: {f}" for (percent, peer, _), f in last.items())
    verdict = "yes" if better == len(last) else "**no**"
    yield ["Evolution: better at 200 evaluations", f"{better} of {len(last)}: {gains}", f"{verdict}{so_far}"]
    yield from _trend_claims(rows)


def _trend_claims(rows: Rows) -> Iterator[list[str]]:
    """The default search against the same samplers at 200 evaluations; it is made for noisy scores."""
    for mode in MODES:
        cells = {cell: difference(rows, mode, *cell, name="Trend") for cell in _cells() if CHECKPOINTS[cell[2]] == 200}
        known = {cell: found for cell, found in cells.items() if found is not None}
        if known:
            better, worse = sum(each.low > 0 for each in known.values()), sum(each.high < 0 for each in known.values())
            gains = ", ".join(f"{cell[1].removeprefix('Optuna ')} {cell[0]}%: {each}" for cell, each in known.items())
            measured = f"better in {better}, worse in {worse} of {len(known)}: {gains}"
            verdict = "yes" if better == len(known) else "**no**"
            yield [f"Trend, the default search: better at 200 evaluations, {mode}", measured, verdict]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
