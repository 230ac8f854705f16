"""Average precision, against cases that can be counted by hand."""

from typing import Any

import pytest

from cafenet.detection import CocoData, build_detector, evaluate_detections, predict
from cafenet.detection.errors import DetectionError
from cafenet.detection.evaluation import require_pycocotools
from tests.helpers.cells import SMALL, cells, pictures, tiny_net


def truth(data: CocoData) -> list[dict[str, Any]]:
    found = data.document()["annotations"]
    return [{**{name: each[name] for name in ("image_id", "category_id", "bbox")}, "score": 1.0} for each in found]


def test_the_truth_itself_has_a_precision_of_one(tmp_path):
    data = cells(tmp_path)
    result = evaluate_detections(data, truth(data))
    assert (result.mAP, result.ap50, result.ap75, result.small) == (1.0, 1.0, 1.0, 1.0)
    assert result.medium is result.large is None  # 16x16 is small
    assert result.per_class == {"red": 1.0, "blue": 1.0}
    assert result.curves["0.5"] == {name: [1.0] * 101 for name in ("mean", "red", "blue")}


def test_half_of_one_class_by_hand(tmp_path):
    data = cells(tmp_path, 4)
    found = [each for each in truth(data) if each["category_id"] == 3][:2]
    result = evaluate_detections(data, found)
    # Two of four red squares: precision 1 at the 51 recalls 0, 0.01, .. 0.5 of 101, and nothing blue.
    assert result.per_class["red"] == pytest.approx(51 / 101)
    assert result.per_class["blue"] == 0.0
    assert result.mAP == pytest.approx(51 / 202)
    assert result.curves["0.75"]["red"] == [1.0] * 51 + [0.0] * 50


def test_boxes_that_are_off_count_up_to_their_overlap(tmp_path):
    data = cells(tmp_path)
    found = truth(data)
    for each in found:
        x, y, width, height = each["bbox"]
        each["bbox"] = [x, y, width, height * 0.75]  # an overlap of 0.75
    result = evaluate_detections(data, found)
    assert (result.ap50, result.ap75) == (1.0, 1.0)
    assert result.mAP == pytest.approx(0.6)  # 6 of the 10 overlaps 0.50, 0.55, .. 0.95


def test_nothing_found(tmp_path):
    data = cells(tmp_path)
    result = evaluate_detections(data, [])
    assert (result.mAP, result.per_class) == (0.0, {"red": 0.0, "blue": 0.0})
    assert result.curves["0.5"]["mean"] == [0.0] * 101


def test_predictions_are_in_pixels_of_the_original_and_leave_the_mode_alone(tmp_path, monkeypatch):
    found = pictures(tmp_path, 3)
    half = type(found)(found.data, type(found.scaling)(24, 32))
    detector = build_detector(tiny_net(), 2, SMALL).train()

    def perfect(images: Any, targets: Any = None) -> Any:
        return [{**half[number][1], "scores": half[number][1]["labels"].float()} for number in range(len(images))]

    monkeypatch.setattr(detector, "forward", perfect)
    results = predict(detector, half, batch_size=3)
    assert detector.training
    assert [each["bbox"] for each in results] == [each["bbox"] for each in found.data.document()["annotations"]]
    assert evaluate_detections(found.data, results).mAP == 1.0


def test_pycocotools_is_asked_for_before_training(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pycocotools.coco", None)
    with pytest.raises(DetectionError, match=r"pip install -c constraints.txt '\.\[detection\]'"):
        require_pycocotools()
