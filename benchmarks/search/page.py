"""The search benchmark's results as a page: the claims first, then the tables that they rest on."""

from collections.abc import Iterator
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks.common.results_file import Results
from benchmarks.search.overhead import is_quiet
from benchmarks.search.regret import difference_tables, regret_claims, regret_tables, suggestion_table
from benchmarks.search.supernet import scoring_code

TABLE_HOW = """The table (channel-bench) holds all 16,384 width vectors of a small ResNet (7 groups, quarters of the
channels), each trained three times on CIFAR-10. *Noise-free*: searches see and are judged by the mean accuracy of the
three trainings. *Noisy*: they see the first training, and the pick is judged by the mean of the other two; the noise is
the table's, the same for all seeds, so intervals over seeds do not cover it. Regret is the best judged accuracy within
the budget less that of the best-looking width so far, in points of percent; it is a mean over seeds.

Ours: default settings, every scored width counts; Trend takes the width that it settles on, whatever its score, in a
search of its own for every number of evaluations. Optuna: default settings, FLOPs / budget - 1 as a constraint
(`Trial.set_constraint`); FLOPs are known for free, so a suggestion above the budget is told as infeasible and does not
count as an evaluation, nor does a width that was suggested before; a run ends at 200 evaluations or 2,000 suggestions.
`-`: most runs have not evaluated any width within the budget yet, or were not run so far."""
SCORING_HOW = """A CNN of {num_groups} groups and {flops_m:.1f}M FLOPs (one multiply-add is one) on CIFAR-10 at 16x16,
trained as a supernet with r = 1 (3 candidates a width; {full_accuracy:.1%} at full width); {num_validation:,}
validation images, a stratified tenth of the training set, and {num_calibration} images for recalibration. The same
search both ways: Evolution, at 50% of FLOPs, one thread, in turns. *Plain* scores every candidate on all validation
images. Widths per minute count the search without its finalists, proposing and storing included. The exact score is
that of the pick: its best candidate on all validation images; ± is the standard error of the paired difference over
these images."""


def markdown(results: Results) -> str:
    """The whole page."""
    versions = ", ".join(f"{package} {version}" for package, version in results.versions.items())
    parts = [
        "# The search",
        f"Made by `make bench-search` (`python -m benchmarks.search`, which says how). {versions}.",
    ]
    claims = list(_claims(results))
    parts += ["## Claims", table(["claim", "measured", "holds"], claims)] if claims else []
    rows = results.rows("table")
    if rows:
        parts += ["## Regret against evaluations", TABLE_HOW, *regret_tables(rows)]
        parts += ["### Optuna's regret less Evolution's, paired by seed", *difference_tables(rows)]
        parts += ["### When every suggestion counts", suggestion_table(rows)]
    parts += [*_overhead(results), *_scoring(results), *_workers(results)]
    return "\n\n".join(parts) + "\n"


def _claims(results: Results) -> Iterator[list[str]]:
    yield from regret_claims(results.rows("table"))
    if rows := list(results.rows("overhead").values()):
        quiet = [row for row in rows if is_quiet(row)]
        where = (
            f"{len(quiet)} of {len(rows)} runs, those without other load" if quiet else f"{len(rows)} runs under load"
        )
        rows = quiet or rows
        value = median(row["ms_overhead"] for row in rows)
        measured = f"{value:.1f} ms (median of {where}; {median(row['ms_cpu'] for row in rows):.1f} ms of CPU)"
        yield ["overhead per candidate at most 5 ms", measured, yes(value <= 5)]
    if rows := list(results.rows("supernet").values()):
        ratios, cpu = _ratios(rows, "seconds"), _ratios(rows, "cpu_seconds")
        measured = f"{median(ratios):.2f}x (median of {len(rows)} seeds, {min(ratios):.2f} to {max(ratios):.2f}; "
        yield [
            "Evolution, r = 1: at least 4x more widths a minute",
            measured + f"CPU time {median(cpu):.2f}x)",
            yes(median(ratios) >= 4),
        ]
        gain, error = _gain(rows)
        measured = f"{100 * gain:+.2f} points, standard error {100 * error:.2f} (n = {len(rows)} seeds)"
        yield ["exact score of the picks not clearly below the plain way's", measured, yes(gain + 2 * error >= 0)]
    if rows := list(results.rows("workers").values()):
        ratios = [row["ratio"] for row in rows]
        measured = f"{median(ratios):.2f}x (median of {len(rows)} runs: {', '.join(f'{each:.2f}' for each in ratios)})"
        yield ["two workers need at most 0.65x the time of one", measured, yes(median(ratios) <= 0.65)]


def _ratios(rows: list[dict[str, Any]], key: str) -> list[float]:
    """Widths per second of the race over the plain way's."""
    return [
        (row["race"]["num_widths"] / row["race"][key]) / (row["plain"]["num_widths"] / row["plain"][key])
        for row in rows
    ]


def _gain(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Mean difference of the picks, and its standard error: of the validation images or of the seeds, the larger.

    The images are the same for all seeds, so more seeds do not make their part smaller.
    """
    gains = [row["race"]["exact_score"] - row["plain"]["exact_score"] for row in rows]
    over_seeds = float(np.std(gains, ddof=1)) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    return mean(gains), max(over_seeds, mean(row["standard_error"] for row in rows))


def _overhead(results: Results) -> Iterator[str]:
    rows = results.rows("overhead")
    if not rows:
        return
    yield "## Overhead per candidate"
    yield (
        "Evolution (default settings) on MobileNetV2 at 224, 50% of FLOPs, with the trial store on a journal file and "
        "a scorer that returns at once; a score that may serve as a bar carries the values of 5,000 examples, as real "
        "ones do. Milliseconds are per candidate, by the wall clock but for ms_cpu; storing includes bar, costs and "
        "fsync. Where the machine's load is above its number of cores, wall time is largely waiting for a core."
    )
    keys = ("num_groups", "num_trials", "ms_overhead", "ms_cpu", "ms_proposing", "ms_storing")
    keys = (*keys, "journal_mb", "reopen_seconds", "load")
    yield table(["run", *keys], [[name, *(str(row.get(key, "-")) for key in keys)] for name, row in rows.items()])


def _scoring(results: Results) -> Iterator[str]:
    rows, network = results.rows("supernet"), results.rows("network").get("small_cnn")
    if not rows or not network:
        return
    yield "## Widths scored per minute"
    yield SCORING_HOW.format(flops_m=network["flops"] / 1e6, **network)
    lines = []
    for name, row in rows.items():
        rates = [60 * row[way]["num_widths"] / row[way]["seconds"] for way in ("race", "plain")]
        gain = row["race"]["exact_score"] - row["plain"]["exact_score"]
        cells = [f"{row['race']['num_widths']} ({row['race']['num_dropped']})", *(f"{rate:.0f}" for rate in rates)]
        cells += [f"{rates[0] / rates[1]:.2f}", f"{_ratios([row], 'cpu_seconds')[0]:.2f}"]
        cells += [f"{row[way]['exact_score']:.2%}" for way in ("race", "plain")]
        lines.append([name, *cells, f"{100 * gain:+.2f} ± {100 * row['standard_error']:.2f}"])
    head = ["search", "widths (dropped)", "race, widths/min", "plain, widths/min", "ratio", "ratio of CPU time"]
    yield table([*head, "race, exact score", "plain, exact score", "difference, points"], lines)
    old = [name for name, row in rows.items() if row.get("code") != scoring_code()]
    if old:
        yield f"Measured with an earlier version of the scoring code: {', '.join(old)}."


def _workers(results: Results) -> Iterator[str]:
    rows = results.rows("workers")
    if not rows:
        return
    yield "## Two workers against one"
    yield (
        "The same supernet and search (5 iterations, finalists included) with one worker of one thread and with two, "
        "on a machine of two cores that others use too; *load* is the machine's load average after the run."
    )
    keys = ("num_widths_1", "num_widths_2", "seconds_1", "seconds_2", "ratio", "load")
    yield table(["run", *keys], [[name, *(str(row[key]) for key in keys)] for name, row in rows.items()])


def yes(holds: bool) -> str:
    """A claim's verdict."""
    return "yes" if holds else "**no**"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
