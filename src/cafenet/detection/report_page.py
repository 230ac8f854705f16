"""The page of a detection run: table, precision against recall, classes, training, and boxes found in sample images."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from cafenet.common.files import write_text
from cafenet.common.read_files import read_what_is_left
from cafenet.common.run_files import DETECTION_EVALUATION, DETECTION_RESULTS, DETECTIONS, MANIFEST, RECIPE, SAMPLES
from cafenet.common.run_places import REPORT, SAMPLE_IMAGES, model_place
from cafenet.detection.results import COLUMNS, HEADS, DetectorRow, claims, from_document, headline_of, spread
from cafenet.detection.sample_images import class_colour, drawn
from cafenet.errors import RecipeError
from cafenet.report.figure_html import figure_part
from cafenet.report.file_checks import check_recipe, read_training_log
from cafenet.report.html import cards, document, folded, masthead, row, table, text
from cafenet.report.kinds import is_own, kind_of
from cafenet.report.plot import Chart, Figure, Key
from cafenet.report.run_page import reproduce
from cafenet.report.scales import Scale
from cafenet.report.training_charts import loss_chart
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
    parts = ['<p class="missing">Not there yet: the detectors are not all trained.</p>']
    if rows:
        curves, losses = precision_recall(directory, rows, problems), training(directory, rows, problems)
        parts = [
            _verdict(rows),
            _table(rows, results["reference"]),
            _dropped(results.get("dropped_boxes", {})),
            _samples(directory, rows, problems),
            "" if curves is None else figure_part("precision-recall", curves),
            '<h2 class="details">Details</h2>',
            _classes(rows),
            "" if losses is None else figure_part("training", losses),
        ]
    parts.append(reproduce(recipe, manifest, f"cafenet detect recipe.yaml --output {name}"))
    head = [masthead("Detection report", name, recipe.get("description") or name)]
    parts = [*head, *(f'<p class="missing">Damaged: {text(line)}.</p>' for line in problems), *parts]
    return document(f"CafeNet detection: {name}", parts)


def precision_recall(directory: Path, rows: Sequence[DetectorRow], problems: list[str]) -> Figure | None:
    """Draw precision against recall, with one line per backbone and overlap.

    Args:
        directory: The run directory.
        rows: The backbones.
        problems: List to which a sentence is added for each damaged file.

    Returns:
        The figure, or None without data.
    """
    tenths = tuple(number / 4 for number in range(5))
    chart = Chart(Scale(0.0, 1.0, tenths), Scale(0.0, 1.02, tenths), "recall", "precision")
    for number, each in enumerate(rows):
        places = [model_place(directory, each.key, seed) for seed in each.seeds]
        found_each = [read_what_is_left(DETECTION_EVALUATION, place, problems) for place in places]
        evaluations = [one for one in found_each if one is not None]
        for iou, style in (("0.5", "solid"), ("0.75", "dashed")):
            found = [curves["mean"] for one in evaluations if (curves := one["curves"].get(iou))]
            if found:
                values = [mean(column) for column in zip(*found, strict=True)]
                chart.line(list(zip(_RECALLS, values, strict=True)), _kind(each, rows), series=number, style=style)
                if iou == "0.5":
                    chart.keys.append(Key(each.backbone, _kind(each, rows), number, "solid"))
    caption = "Mean over classes and seeds; solid lines at an overlap of 0.5, dashed lines at 0.75."
    return Figure("Precision against recall", caption, (chart,)) if chart.keys else None


def training(directory: Path, rows: Sequence[DetectorRow], problems: list[str]) -> Figure | None:
    """Draw the training loss of each backbone's first seed.

    Args:
        directory: The run directory.
        rows: The backbones.
        problems: List to which a sentence is added for each damaged log.

    Returns:
        The figure, or None without data.
    """
    curves = []
    for each in rows:
        log = read_training_log(model_place(directory, each.key, each.seeds[0]), problems, was_trained=True)
        if len(log) > 1:
            curves.append((each.backbone, _kind(each, rows), log))
    if not curves:
        return None
    caption = f"Seed {rows[0].seeds[0]}, smoothed, without the steep first tenth."
    return Figure("Training loss", caption, (loss_chart(curves, "loss"),), is_detail=True)


def _kind(each: DetectorRow, rows: Sequence[DetectorRow]) -> str:
    """Return the kind of a backbone: that of its method, which its name begins with."""
    method = next((name for name in ("Uniform", "Original") if each.backbone.startswith(name)), each.backbone)
    return kind_of(method, [row.backbone for row in rows])


def _row_class(each: DetectorRow, rows: Sequence[DetectorRow]) -> str:
    """Return the CSS class of a backbone's row."""
    return _kind(each, rows) + (" ours" if is_own(each.backbone) else "")


def _verdict(rows: Sequence[DetectorRow]) -> str:
    """Return the results and the claims, in the first lines of the page."""
    own = [each for each in rows if is_own(each.backbone)]
    if not own:
        return ""
    first = text(headline_of(own[0], rows))
    lines = [f"{each.backbone}: {headline_of(each, rows)}" for each in own[1:]]
    lines += [line for line in claims(rows) if own[0].seeds[1:]]  # intervals need several seeds
    said = "".join(f"<p>{text(line)}.</p>" for line in lines)
    return f'<div class="verdict"><p class="headline">{first}.</p>{said}</div>'


def _table(rows: Sequence[DetectorRow], references: Sequence[dict[str, str]]) -> str:
    """Return the table of results."""
    head = ("backbone", HEADS[0], "FLOPs", "parameters", *HEADS[1:])
    body = [
        (_row_class(each, rows), [each.backbone, first, count(each.flops), count(each.params), *others])
        for each in rows
        for first, *others in [[each.shown(column) for column in COLUMNS]]
    ]
    empty = [""] * (len(head) - 2)
    body += [("published", [f"{each['backbone']} (published)", each["mAP"], *empty]) for each in references]
    num_seeds = len(rows[0].seeds)
    of_seeds = (
        f"{num_seeds} seeds (mean ± standard deviation)" if num_seeds > 1 else "one seed, no evidence of a difference"
    )
    note = (
        f"{rows[0].framework}, average precision in % after the last epoch, {of_seeds}. All backbones start from the "
        f"same pretraining: {rows[0].pretraining}. FLOPs (one multiply-add is one) of backbone and FPN for one image."
    )
    return f'<section><h2>Results</h2>{cards(head, body)}<p class="note">{text(note)}</p></section>'


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
    return folded("Average precision by class", table(("class", *(each.backbone for each in rows)), body))


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
        f'<i class="swatch" style="background:{class_colour(number)}"></i>{text(name)}'
        for number, name in enumerate(samples["classes"], start=1)
    )
    grids = "".join(f'<div class="samples">{block}</div>' for block in blocks)
    note = f'<p class="note">Boxes with a score of {_SHOWN_SCORE} or more: {colours}.</p>'
    return f"<section><h2>What was found</h2>{note}{grids}</section>"


def _figure(directory: Path, image: dict[str, Any], name: str, boxes: Sequence[Sequence[Any]]) -> str:
    """Return one sample image with boxes."""
    source = drawn(directory / SAMPLE_IMAGES / f"{image['image_id']}.jpg", image["width"], boxes)
    words = f"{name}: {len(boxes)}"
    shown = f'<img src="{source}" alt="{text(words)}">'
    return f"<figure>{shown}<figcaption>{text(words)}</figcaption></figure>"
