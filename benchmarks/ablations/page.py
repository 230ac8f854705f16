"""docs/ablations.md and its figure, made of what was measured."""

from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from matplotlib.figure import Figure

from benchmarks.ablations.cells import ABLATIONS, EPOCHS, Ablation, Cell
from benchmarks.common.intervals import cell_of
from benchmarks.common.places import kept_results
from benchmarks.common.results_file import Results
from benchmarks.ranking.law import Law, fit_law, known_truth
from benchmarks.ranking.networks import BAND, task
from benchmarks.ranking.picks import BEST_OF_LINE, without_supernet
from benchmarks.ranking.supernets import NUM_VALIDATION
from cafenet.common.statistics import compare_paired

NETWORK = "residual"
"""One of the ranking benchmark's two networks. On the plain one the best width is hardly better than uniform ones."""
NUM_COLUMNS = 7
RANKING = kept_results("ranking")
"""The labels that the line is fitted to."""


def markdown(results: Results, epochs: float = EPOCHS) -> str:
    """The page."""
    law = labels_law()
    floors = {name: law.accuracy(widths) for name, widths in without_supernet(task(NETWORK), law).items()}
    lines = [
        "# The paper's ablations at a small scale",
        "",
        "Made by `make bench-ablations` (`python -m benchmarks.ablations`, which says how to restart and share it).",
        "The ranking benchmark's residual network (four blocks, 1.1M FLOPs) on 10,000 images of CIFAR-10 at 16x16,",
        f"50% of FLOPs where a row does not say otherwise. A row trains a supernet for {epochs:g} epochs (or the",
        f"multiple named) and searches it on {NUM_VALIDATION:,} validation images; n is the number of supernet seeds.",
        "The width found is judged in two ways:",
        "",
        "- *By the line* that is fitted to the labels of all widths of [Ranking](ranking.md), trained from scratch 200",
        "  times in all. It has no noise of a single training, and is the primary measure.",
        f"  {law.reading}",
        "  It holds for 35% to 65% of FLOPs. A trend has the same form as the line, so the line favours searches",
        f"  by trend. At 50% uniform widths have {floors['uniform widths']:.2f}% by the line, and its best width",
        f"  within twice of these has {floors[BEST_OF_LINE]:.2f}%.",
        "- *Trained* from scratch for 10 epochs, once a seed, in some rows of a15, lambda, r and time_efficiency for",
        "  two of the three seeds: accuracy on the 5,000 test images. Such trainings do not bear out the lead of trend",
        "  by the line in the first table, so the line is no judge between searches.",
        "",
        "Mean and standard deviation over seeds; differences are paired by seed, with 95% intervals, bold where these",
        "do not hold zero. There are many comparisons: of twenty without any difference one is expected to be bold,",
        "and two seeds say little.",
        "Training is the supernet's, in CPU seconds, where it was measured without a break; stages without a number",
        "train one each, or share the epochs of one where the row says so. Tables and rows that are not there yet were",
        "not measured.",
    ]
    tables = [line for name, ablation in ABLATIONS.items() for line in _table(results, law, name, ablation)]
    if tables:
        lines += ["", "![Accuracy by the line of every row with its standard error](images/ablations.svg)", *tables]
    return "\n".join(lines) + "\n"


def labels_law() -> Law:
    """The line of the network's labels."""
    known = known_truth(Results(RANKING, any_version=True), task(NETWORK))
    assert known is not None
    return fit_law(task(NETWORK), known)


def by_the_line(results: Results, law: Law, cell: Cell) -> dict[str, float]:
    """Values per supernet seed; empty outside the band of FLOPs that has labels."""
    if not BAND[0] <= cell.percent / 100 <= BAND[1]:
        return {}
    names = [group.name for group in task(NETWORK).space.groups]
    found = _found(results, cell).items()
    return {seed: law.accuracy([widths[name] for name in names]) for seed, widths in found}


def trained(results: Results, cell: Cell) -> dict[str, float]:
    """Accuracies per supernet seed: the width that it found, trained from scratch."""
    rows, keys = results.rows("trained"), {seed: key_of(widths) for seed, widths in _found(results, cell).items()}
    return {seed: rows[key][seed] for seed, key in keys.items() if seed in rows.get(key, {})}


def _found(results: Results, cell: Cell) -> dict[str, dict[str, int]]:
    return {seed: row["widths"] for seed, row in results.rows("cells").get(cell.key, {}).items()}


def key_of(widths: dict[str, int]) -> str:
    """The key under which the trainings of a width are kept."""
    return "-".join(map(str, widths.values()))


def _table(results: Results, law: Law, name: str, ablation: Ablation) -> list[str]:
    measured = {row: (by_the_line(results, law, cell), trained(results, cell)) for row, cell in ablation.cells.items()}
    measured = {row: both for row, both in measured.items() if any(both)}
    if len(measured) < 2:
        return []
    minus = f"minus {ablation.reference}"
    return [
        "",
        f"## {ablation.title}",
        "",
        f"`python -m benchmarks.ablations --tables {name}`",
        "",
        f"| | n | by the line, % | {minus} | trained, % | {minus} | training, s |",
        "| --- |" + " ---: |" * (NUM_COLUMNS - 1),
        *(_row(results, row, measured, ablation) for row in measured),
    ]


def _row(results: Results, row: str, measured: dict[str, Any], ablation: Ablation) -> str:
    reference = measured.get(_reference(row, ablation), ({}, {}))
    cells = [str(max(map(len, measured[row])))]
    for values, others in zip(measured[row], reference, strict=True):
        cells += [_spread(values), _difference(values, others)]
    return f"| {row} | {' | '.join(cells)} | {_seconds(results, ablation.cells[row])} |"


def _reference(row: str, ablation: Ablation) -> str:
    """The row that a row is compared with: in the table of budgets, that of the same budget."""
    budget = row.rsplit(", ", 1)[-1]
    same = ablation.reference.rsplit(", ", 1)[0] + ", " + budget
    return same if budget.endswith("%") and same in ablation.cells else ablation.reference


def _seconds(results: Results, cell: Cell) -> str:
    rows = results.rows("training seconds").get(cell.supernet_key, {}) if cell.stages.num_stages == 1 else {}
    return f"{median(rows.values()):.0f}" if rows else ""


def _spread(values: dict[str, float]) -> str:
    if not values:
        return ""
    found = list(values.values())
    return f"{mean(found):.2f}" + (f" ± {stdev(found):.2f}" if len(found) > 1 else "")


def _difference(values: dict[str, float], reference: dict[str, float]) -> str:
    seeds = sorted(set(values) & set(reference))
    if values is reference or not seeds:
        return ""
    return cell_of(compare_paired([values[seed] for seed in seeds], [reference[seed] for seed in seeds]))


def write_figure(results: Results, path: Path) -> None:
    """One panel a table; a point is a row's mean with its standard error."""
    law = labels_law()
    tables = {
        name: {row: found for row, cell in ablation.cells.items() if (found := by_the_line(results, law, cell))}
        for name, ablation in ABLATIONS.items()
    }
    tables = {name: rows for name, rows in tables.items() if len(rows) > 1}
    if not tables:
        return
    heights = [len(rows) + 1.5 for rows in tables.values()]
    figure = Figure(figsize=(8, 0.24 * sum(heights)), layout="constrained")
    panels = figure.subplots(len(tables), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (name, rows) in zip(panels, tables.items(), strict=True):
        for place, values in enumerate(rows.values()):
            found = list(values.values())
            error = stdev(found) / len(found) ** 0.5 if len(found) > 1 else 0.0
            axes.errorbar(mean(found), place, xerr=error, fmt="o", color="C0", markersize=4, capsize=3)
        axes.set_yticks(range(len(rows)), list(rows), fontsize=8)
        axes.invert_yaxis()
        axes.grid(axis="x", alpha=0.3)
        axes.set_title(ABLATIONS[name].title, fontsize=9, loc="left")
    panels[-1].set_xlabel("accuracy by the line, %")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
