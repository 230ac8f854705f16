"""Predictions of a detector, and their quality: COCO's average precision, by pycocotools."""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch

from cafenet.common.extras import install
from cafenet.detection.dataset import CocoData
from cafenet.detection.detectors import Detector
from cafenet.detection.errors import DetectionError
from cafenet.detection.images import Pictures, loader

_CURVE_IOUS = (0.5, 0.75)


@dataclass(frozen=True)
class Evaluation:
    """Average precision by COCO's rules; None if there is nothing to find, such as no large object at all."""

    mAP: float
    """Mean over classes and over the overlaps 0.50, 0.55, .. 0.95: 1.0 for a perfect detector."""
    ap50: float
    """Average precision at an overlap of 0.5."""
    ap75: float
    """Average precision at an overlap of 0.75."""
    small: float | None
    """Average precision for objects of less than 32x32 pixels."""
    medium: float | None
    """Average precision for objects between small and large."""
    large: float | None
    """Average precision for objects of more than 96x96 pixels."""
    per_class: dict[str, float | None]
    """Average precision of each class, by name."""
    curves: dict[str, dict[str, list[float]]]
    """Precision at recalls of 0, 0.01, .. 1, by overlap ("0.5", "0.75"), for the `mean` over classes and for each
    class."""


@torch.no_grad()
def predict(detector: Detector, pictures: Pictures, *, batch_size: int = 8, num_workers: int = 0) -> list[Any]:
    """Run a detector on all pictures.

    Args:
        detector: The detector; its mode is unchanged afterwards.
        pictures: The images.
        batch_size: Number of images in a batch.
        num_workers: Number of processes that prepare images.

    Returns:
        All boxes in COCO's result format, in pixels of the original images.
    """
    device = next(detector.parameters()).device
    was_training = detector.training
    detector.eval()
    found: list[Any] = []
    start = 0
    for images, _ in loader(pictures, batch_size, num_workers):
        for offset, prediction in enumerate(detector([image.to(device) for image in images])):
            found += _results(pictures, start + offset, {key: value.cpu() for key, value in prediction.items()})
        start += len(images)
    detector.train(was_training)
    return found


def _results(pictures: Pictures, index: int, prediction: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
    """Return the boxes of one image in COCO's result format."""
    boxes = prediction["boxes"] / pictures.factors(index).flip(0).repeat(2)
    boxes[:, 2:] -= boxes[:, :2]
    categories = pictures.data.categories
    return [
        {
            "image_id": pictures.data.pictures[index].id,
            "category_id": categories[label - 1][0],
            "bbox": [round(value, 3) for value in box],
            "score": round(score, 6),
        }
        for box, label, score in zip(
            boxes.tolist(), prediction["labels"].tolist(), prediction["scores"].tolist(), strict=True
        )
        if label > 0
    ]


def _lost_box(data: CocoData) -> dict[str, Any]:
    """Return a box that matches nothing, so that an empty list of results is evaluated like any other."""
    number, _ = data.categories[0]
    return {"image_id": data.pictures[0].id, "category_id": number, "bbox": [-9.0, -9.0, 1.0, 1.0], "score": 0.0}


def evaluate_detections(data: CocoData, results: Sequence[dict[str, Any]]) -> Evaluation:
    """Compare results with the boxes of a data set; results equal to the boxes have an mAP of 1.

    Args:
        data: The data set.
        results: Boxes in COCO's result format, as `predict` returns them.

    Returns:
        The average precisions.

    Raises:
        DetectionError: If pycocotools is not installed.
    """
    results = results or [_lost_box(data)]
    library, evaluator = _pycocotools()
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints its every step
        truth = library.COCO()
        truth.dataset = data.document()
        truth.createIndex()
        run = evaluator.COCOeval(truth, truth.loadRes(list(results)), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    precision = run.eval["precision"][:, :, :, 0, -1]  # (overlaps, recalls, classes), all sizes, 100 boxes per image
    total, at_50, at_75, small, medium, large = (None if value < 0 else float(value) for value in run.stats[:6])
    return Evaluation(
        mAP=total or 0.0,
        ap50=at_50 or 0.0,
        ap75=at_75 or 0.0,
        small=small,
        medium=medium,
        large=large,
        per_class={name: _mean(precision[:, :, number]) for number, name in enumerate(data.classes)},
        curves={str(iou): _curves(precision[round((iou - 0.5) / 0.05)], data.classes) for iou in _CURVE_IOUS},
    )


def require_pycocotools() -> None:
    """Check that pycocotools is installed, before training and not after it.

    Raises:
        DetectionError: If it is not installed.
    """
    _pycocotools()


def _curves(precision: Any, classes: Sequence[str]) -> dict[str, list[float]]:
    """Return precision by recall, for every class that occurs and for their mean."""
    there = {name: precision[:, number] for number, name in enumerate(classes) if (precision[:, number] >= 0).all()}
    curves = {"mean": np.mean(list(there.values()), axis=0), **there} if there else {}
    return {name: np.round(values, 4).tolist() for name, values in curves.items()}


def _mean(precision: Any) -> float | None:
    """Return the mean of valid precisions, or None if there are none."""
    valid = precision[precision >= 0]
    return float(valid.mean()) if valid.size else None


def _pycocotools() -> tuple[Any, Any]:
    """Import pycocotools, or explain how to install it."""
    try:
        return import_module("pycocotools.coco"), import_module("pycocotools.cocoeval")
    except ModuleNotFoundError as error:
        raise DetectionError(
            f"average precision needs pycocotools, which is not installed; {install('detection')}"
        ) from error
