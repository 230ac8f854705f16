"""The blood cells that the small recipes are for, where they are at hand."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cafenet.detection import Pictures, Scaling, build_detector, evaluate_detections, read_coco, train_detector
from cafenet.detection.dataset import check_pair
from cafenet.detection.recipe import load_detection_recipe
from cafenet.models import load_model

BCCD = Path(__file__).resolve().parents[3] / "shared" / "data" / "bccd"
pytestmark = pytest.mark.skipif(not BCCD.is_dir(), reason="needs ../shared/data/bccd")


def test_the_whole_data_set_is_sound_and_its_truth_has_a_precision_of_one():
    train, test = (read_coco(BCCD / f"{part}.json", BCCD / "images") for part in ("train", "val"))
    check_pair(train, test)
    assert (len(train), len(test)) == (292, 72)
    assert train.classes == ("RBC", "WBC", "Platelets")
    truth = [{**each, "score": 0.9} for each in test.document()["annotations"]]
    result = evaluate_detections(test, truth)
    assert (result.mAP, result.small, result.medium, result.large) == (1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("name", ["bccd-faster-rcnn", "bccd-retinanet"])
def test_the_small_recipes_take_a_step(name):
    recipe = load_detection_recipe(name)
    whole = read_coco(BCCD / "val.json", BCCD / "images")
    data = Pictures(replace(whole, pictures=whole.pictures[:4]), Scaling(240, 320), flip=True)
    model = load_model("cafenet:celeba_mobilenet_v2", width=0.35)
    detector = build_detector(model, len(whole.classes), recipe.detector)
    result = train_detector(detector, data, replace(recipe.train, epochs=1, batch_size=4), quiet=True)
    assert result.steps == 1
    assert 0 < result.last_loss < 10
    assert all(torch.isfinite(parameter).all() for parameter in detector.parameters())
