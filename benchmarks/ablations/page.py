"""docs/ablations.md and its figure, made of what was measured."""

from pathlib import Path
from statistics import mean, median, stdev

from benchmarks.ablations.cells import ABLATIONS, Ablation, Cell
from benchmarks.intervals import cell_of
from benchmarks.search_results import Results
from matplotlib.figure import Figure

from cafenet.pairing import compare_paired

TRAININGS = 2
"""Of every width that is found, from scratch, for each supernet seed."""


def markdown(results: Results, epochs: float) -> str:
    """The page."""
    lines = [
        "# The paper's ablations at a small scale",
        "",
        "Made by `make bench-ablations` (`python -m benchmarks.ablations`, which says how to restart and share it).",
        "The ranking benchmark's plain network (five convolutions, 1.4M FLOPs) on 10,000 images of CIFAR-10 at 16x16,",
        f"50% of FLOPs where a row does not say otherwise. A row trains a supernet for {epochs:g} epochs (or the",
        "multiple named), searches it, and trains the width found from scratch for 10 epochs, twice for each supernet",
        "seed; n is the number of supernet seeds. Accuracy on the 5,000 test images, mean and standard deviation over",
        "seeds; differences are paired by seed, with 95% intervals, bold where they do not hold zero. Training is the",
        "supernet's, in CPU seconds, where it was measured without a break. One seed says nothing; tables that are not",
        "there yet were not measured. All rows are of revision ba4e679, where channels were sorted by all of their",
        "weights and a trend's pick might lie four times from uniform widths.",
        "",
        "![Accuracy of every row with its standard error](images/ablations.svg)",
    ]
    for name, ablation in ABLATIONS.items():
        lines += _table(results, name, ablation)
    return "\n".join(lines) + "\n"


def accuracies(results: Results, cell: Cell) -> dict[str, float]:
    """Per supernet seed: the mean over the trainings of the width that it found."""
    trained, found = results.rows("trained"), {}
    for seed, row in results.rows("cells").get(cell.key, {}).items():
        labels = trained.get("-".join(map(str, row["widths"].values())), {})
        values = [labels.get(str(int(seed) * TRAININGS + number)) for number in range(TRAININGS)]
        if None not in values:
            found[seed] = mean(value for value in values if value is not None)
    return found


def _table(results: Results, name: str, ablation: Ablation) -> list[str]:
    measured = {row: accuracies(results, cell) for row, cell in ablation.cells.items()}
    if sum(map(bool, measured.values())) < 2:
        return []
    lines = ["", f"## {ablation.title}", "", f"`python -m benchmarks.ablations --tables {name}`", ""]
    lines += [
        f"| | n | accuracy, % | minus {ablation.reference} | training, s |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row, values in measured.items():
        if not values:
            continue
        reference = measured[_reference(row, ablation)]
        seconds = _seconds(results, ablation.cells[row])
        lines.append(f"| {row} | {len(values)} | {_spread(values)} | {_difference(values, reference)} | {seconds} |")
    return lines


def _reference(row: str, ablation: Ablation) -> str:
    """What a row is compared with: in the table of budgets, the row of the same budget."""
    budget = row.rsplit(", ", 1)[-1]
    same = ablation.reference.rsplit(", ", 1)[0] + ", " + budget
    return same if budget.endswith("%") and same in ablation.cells else ablation.reference


def _seconds(results: Results, cell: Cell) -> str:
    rows = results.rows("training seconds").get(cell.supernet_key, {}) if cell.stages.num_stages == 1 else {}
    return f"{median(rows.values()):.0f}" if rows else ""


def _spread(values: dict[str, float]) -> str:
    found = list(values.values())
    return f"{mean(found):.2f}" + (f" ± {stdev(found):.2f}" if len(found) > 1 else "")


def _difference(values: dict[str, float], reference: dict[str, float]) -> str:
    seeds = sorted(set(values) & set(reference))
    if values is reference or not seeds:
        return ""
    return cell_of(compare_paired([values[seed] for seed in seeds], [reference[seed] for seed in seeds]))


def write_figure(results: Results, path: Path) -> None:
    """One panel a table; a point is a row's mean with its standard error."""
    tables = {
        name: {row: found for row, cell in ablation.cells.items() if (found := accuracies(results, cell))}
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
    panels[-1].set_xlabel("test accuracy, %")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
