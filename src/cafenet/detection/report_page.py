"""The page of a detection run: table, precision against recall, classes, training, and boxes found in sample images."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import yaml
from matplotlib.figure import Figure

from cafenet.common.files import write_text
from cafenet.common.run_files import (
    DETECTION_EVALUATION,
    DETECTION_RESULTS,
    DETECTIONS,
    MANIFEST,
    RECIPE,
    REPORT,
    SAMPLE_IMAGES,
    SAMPLES,
    model_place,
    read_what_is_left,
)
from cafenet.detection.results import COLUMNS, HEADS, DetectorRow, claims, from_document, spread
from cafenet.detection.sample_images import class_colour, drawn
from cafenet.errors import RecipeError
from cafenet.report.figure_style import colour, label_of, legend, mark, single, smoothed
from cafenet.report.file_checks import check_recipe, read_training_log
from cafenet.report.html import document, figure_part, row, table, text
from cafenet.report.run_page import time_taken
from cafenet.runs.results import count

_SHOWN_SCORE = 0.5
_RECALLS = [number / 100 for number in range(101)]


def write_detection_report(directory: str | Path, path: Path | None = None) -> Path:
    """Write the page of a run of `cafenet detect`.

    Args:
        directory: The run directory.
        path: The file to write, by default `report.html` in the run directory. Its directory is made.

    Returns:
        The path of the page.

    Raises:
        RecipeError: If the directory holds no run.
    """
    directory = Path(directory)
    if not any((directory / file.name).is_file() for file in (RECIPE, MANIFEST, DETECTION_RESULTS)):
        raise RecipeError(f"{directory} must be a run directory, but has no {RECIPE.name}; see `cafenet detect`")
    path = directory / REPORT if path is None else path
    page = _page(directory)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)
    return path


def _page(directory: Path) -> str:
    """Return the HTML of the page."""
    problems: list[str] = []
    recipe = read_what_is_left(RECIPE, directory, problems) or {}
    results = read_what_is_left(DETECTION_RESULTS, directory, problems) or {"detectors": [], "reference": []}
    manifest = read_what_is_left(MANIFEST, directory, problems, must_exist=True) or {}
    check_recipe(directory, recipe, manifest, problems)
    rows = from_document(results)
    name = directory.resolve().name
    parts = []
    if rows:
        curves, losses = precision_recall(directory, rows, problems), training(directory, rows, problems)
        parts += [
            _verdict(rows),
            _table(rows, results["reference"]),
            _dropped(results.get("dropped_boxes", {})),
            figure_part(
                "precision-recall",
                "Precision against recall",
                "Mean over classes and seeds; solid lines at an overlap of 0.5, dashed lines at 0.75.",
                curves,
            ),
            _classes(rows),
            _samples(directory, rows, problems),
            figure_part("training", "Training loss", f"Seed {rows[0].seeds[0]}, smoothed.", losses),
        ]
    else:
        parts.append('<p class="missing">Not there yet: the detectors are not all trained.</p>')
    parts.append(_recipe(manifest, recipe, name))
    head = [f"<h1>{text(recipe.get('description') or name)}</h1>"]
    parts = [*head, *(f'<p class="missing">Damaged: {text(line)}.</p>' for line in problems), *parts]
    return document(f"CafeNet detection: {name}", parts)


def precision_recall(directory: Path, rows: Sequence[DetectorRow], problems: list[str]) -> Figure:
    """Draw precision against recall, with one line per backbone and overlap.

    Args:
        directory: The run directory.
        rows: The backbones.
        problems: List to which a sentence is added for each damaged file.

    Returns:
        The figure.
    """
    figure, axes = single()
    for number, each in enumerate(rows):
        places = [model_place(directory, each.key, seed) for seed in each.seeds]
        found_each = [read_what_is_left(DETECTION_EVALUATION, place, problems) for place in places]
        evaluations = [one for one in found_each if one is not None]
        for iou, style in (("0.5", "-"), ("0.75", "--")):
            found = [curves["mean"] for one in evaluations if (curves := one["curves"].get(iou))]
            if not found:
                continue
            values = [mean(column) for column in zip(*found, strict=True)]
            (line,) = axes.plot(
                _RECALLS, values, style, color=colour(number), label=label_of(each.backbone) if iou == "0.5" else "_"
            )
            mark(line, series=number, tip=f"{each.backbone}, overlap {iou}")
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
    legend(axes, range(len(axes.get_legend_handles_labels()[0])))
    return figure


def training(directory: Path, rows: Sequence[DetectorRow], problems: list[str]) -> Figure:
    """Draw the training loss of each backbone's first seed.

    Args:
        directory: The run directory.
        rows: The backbones.
        problems: List to which a sentence is added for each damaged log.

    Returns:
        The figure.
    """
    figure, axes = single()
    for number, each in enumerate(rows):
        place = model_place(directory, each.key, each.seeds[0])
        lines = read_training_log(place, problems, was_trained=True)
        (line,) = axes.plot(
            [one["epoch"] for one in lines],
            smoothed([one["loss"] for one in lines]),
            color=colour(number),
            label=label_of(each.backbone),
        )
        mark(line, series=number, tip=each.backbone)
    axes.set(xlabel="epoch", ylabel="loss")
    legend(axes, range(len(rows)))
    return figure


def _verdict(rows: Sequence[DetectorRow]) -> str:
    """Return the results and the claims, in the first lines of the page."""
    own = [each for each in rows if each.backbone.startswith("CafeNet")]
    lines = [f"<b>{text(each.backbone)}: {each.shown('mAP')}% mAP</b>." for each in own]
    lines += [text(line) + "." for line in claims(rows)]
    return f'<div class="verdict">{"<br>".join(lines)}</div>' if lines else ""


def _table(rows: Sequence[DetectorRow], references: Sequence[dict[str, str]]) -> str:
    """Return the table of results."""
    body = [
        row(
            (each.backbone, count(each.flops), count(each.params), *(each.shown(column) for column in COLUMNS)),
            "own" if each.backbone.startswith("CafeNet") else "",
        )
        for each in rows
    ]
    body += [row((f"{each['backbone']} (published)", "", "", each["mAP"]), "published") for each in references]
    num_seeds = len(rows[0].seeds)
    of_seeds = (
        f"{num_seeds} seeds (mean ± standard deviation)" if num_seeds > 1 else "one seed, no evidence of a difference"
    )
    note = (
        f"{rows[0].framework}, average precision in % after the last epoch, {of_seeds}. All backbones start from the "
        f"same pretraining: {rows[0].pretraining}. FLOPs (one multiply-add is one) of backbone and FPN for one image."
    )
    return f"<h2>Results</h2>{table(('backbone', 'FLOPs', 'params', *HEADS), body)}<p>{text(note)}</p>"


def _dropped(counts: dict[str, int]) -> str:
    """Return a sentence about dropped boxes, if there were any."""
    found = [f"{number} of {name}" for name, number in counts.items() if number]
    return f"<p>Boxes without size or outside their image, left out: {text(', '.join(found))}.</p>" if found else ""


def _classes(rows: Sequence[DetectorRow]) -> str:
    """Return the table of average precision by class."""
    classes = list(rows[0].per_class[0])
    body = []
    for name in classes:
        cells = [spread([100 * value for seed in each.per_class if (value := seed[name]) is not None]) for each in rows]
        body.append(row((name, *cells)))
    return f"<h2>Average precision by class</h2>{table(('class', *(each.backbone for each in rows)), body)}"


def _samples(directory: Path, rows: Sequence[DetectorRow], problems: list[str]) -> str:
    """Return every sample image with its true boxes, then with the boxes that each detector found."""
    samples = read_what_is_left(SAMPLES, directory, problems)
    if not samples or not samples["images"]:
        return ""
    labels = {category: number for number, category in enumerate(samples["categories"], start=1)}
    places = {each.backbone: model_place(directory, each.key, each.seeds[0]) for each in rows}
    found = {name: read_what_is_left(DETECTIONS, place, problems) or [] for name, place in places.items()}
    blocks = []
    for image in samples["images"]:
        shown = [("true boxes", image["boxes"])]
        for name, detections in found.items():
            boxes = [
                [x, y, x + width, y + height, labels[each["category_id"]]]
                for each in detections
                if each["image_id"] == image["image_id"] and each["score"] >= _SHOWN_SCORE
                for x, y, width, height in [each["bbox"]]
            ]
            shown.append((name, boxes))
        blocks.append("".join(_figure(directory, image, name, boxes) for name, boxes in shown))
    colours = ", ".join(
        f'<b style="color:{class_colour(number)}">{text(name)}</b>'
        for number, name in enumerate(samples["classes"], start=1)
    )
    style = "display:grid;grid-template-columns:repeat(auto-fit,minmax(12rem,1fr));gap:0.5rem;margin-bottom:1rem"
    grids = "".join(f'<div style="{style}">{block}</div>' for block in blocks)
    return f"<h2>What was found</h2><p>Boxes with a score of {_SHOWN_SCORE} or more: {colours}.</p>{grids}"


def _figure(directory: Path, image: dict[str, Any], name: str, boxes: Sequence[Sequence[Any]]) -> str:
    """Return one sample image with boxes."""
    source = drawn(directory / SAMPLE_IMAGES / f"{image['image_id']}.jpg", image["width"], boxes)
    words = f"{name}: {len(boxes)}"
    shown = f'<img src="{source}" alt="{text(words)}" style="width:100%">'
    return f"<figure>{shown}<figcaption>{text(words)}</figcaption></figure>"


def _recipe(manifest: dict[str, Any], recipe: dict[str, Any], name: str) -> str:
    """Return the command and the recipe that reproduce the run."""
    facts = {key: manifest.get(key) for key in ("started", "finished", "git_revision", "versions", "hardware")}
    return (
        f"<h2>Reproduce it</h2><p>Save the recipe below as recipe.yaml{time_taken(manifest)}.</p>"
        f"<pre>{text(f'cafenet detect recipe.yaml --output {name}')}</pre>"
        f"<details><summary>recipe.yaml</summary><pre>{text(yaml.safe_dump(recipe, sort_keys=False))}</pre></details>"
        f"<details><summary>versions, hardware</summary><pre>{text(json.dumps(facts, indent=1))}</pre></details>"
    )
