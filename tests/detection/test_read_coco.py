"""COCO-style files: what is read from them, and that every mistake is counted and named before training."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from cafenet.detection import Pictures, Scaling, divide, read_coco
from cafenet.detection.dataset import check_pair
from cafenet.detection.errors import DetectionError
from tests.helpers.cells import SIZE, cells, document, pictures, write_cells


def refused(place: Path, content: dict[str, Any], **options: Any) -> str:
    path = write_cells(place, content)
    with pytest.raises(DetectionError) as error:
        read_coco(path, place / "images", **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def with_box(number: int, bbox: Any) -> dict[str, Any]:
    content = document(2)
    content["annotations"][number] = {**content["annotations"][number], "bbox": bbox}
    return content


def test_labels_count_from_one_in_the_order_of_ids(tmp_path):
    data = cells(tmp_path, 2)
    assert data.categories == ((3, "red"), (7, "blue"))
    assert data.classes == ("red", "blue")
    first = document(2)["annotations"][0]["bbox"]
    box = data.pictures[0].boxes[0]
    assert (box.corners, box.label) == ((first[0], first[1], first[0] + 16, first[1] + 16), 1)
    assert [each.label for each in data.pictures[1].boxes] == [1, 2]
    again = data.document()
    assert [each["bbox"] for each in again["annotations"]] == [each["bbox"] for each in document(2)["annotations"]]
    assert [each["category_id"] for each in again["annotations"]] == [3, 7, 3, 7]


def test_no_categories(tmp_path):
    content = document(2)
    del content["categories"]
    assert "must hold images, annotations and categories, but has no categories" in refused(tmp_path, content)
    assert "has no images, no annotations, no categories" in refused(tmp_path, {})


def test_boxes_outside_the_image_are_counted_and_named(tmp_path):
    content = with_box(0, [60, 10, 16, 16])
    content["annotations"][2]["bbox"] = [-5, 0, 10, 10]
    message = refused(tmp_path, content)
    assert "2 boxes outside the image (annotation 1 of 0.png: [60, 10, 16, 16], annotation 3 of 1.png: " in message
    assert "data.bad_boxes drop" in message


@pytest.mark.parametrize("bbox", [[4, 4, 0, 10], [4, 4, 10, 0], [4, 4, -3, 10]])
def test_boxes_of_zero_size(tmp_path, bbox):
    assert f"1 boxes of zero size (annotation 2 of 0.png: {bbox})" in refused(tmp_path, with_box(1, bbox))


@pytest.mark.parametrize("bbox", [[1, 2, 3], "box", None, [1, 2, "3", 4]])
def test_boxes_that_are_no_boxes(tmp_path, bbox):
    content = with_box(1, bbox)
    write_cells(tmp_path, document(2))
    (tmp_path / "cells.json").write_text(json.dumps(content))
    with pytest.raises(DetectionError, match="1 boxes that are not four numbers"):
        read_coco(tmp_path / "cells.json", tmp_path / "images")


def test_bad_boxes_can_be_dropped_and_are_counted(tmp_path):
    content = with_box(0, [60, 10, 16, 16])
    content["annotations"][1]["bbox"] = [4, 4, 0, 10]
    data = read_coco(write_cells(tmp_path, content), tmp_path / "images", bad_boxes="drop")
    assert data.num_dropped == 2
    assert [len(each.boxes) for each in data.pictures] == [0, 2]


def test_boxes_that_rounding_pushes_over_the_edge_are_clipped(tmp_path):
    data = read_coco(write_cells(tmp_path, with_box(0, [-0.4, 40, 10, 8.6])), tmp_path / "images")
    assert data.pictures[0].boxes[0].corners == (0.0, 40.0, 9.6, 48.0)


def test_many_problems_in_one_message(tmp_path):
    content = document(9)
    path = write_cells(tmp_path, content)
    content = copy.deepcopy(content)
    for number in range(7):
        (tmp_path / "images" / f"{number}.png").unlink()
    Image.new("RGB", (20, 30)).save(tmp_path / "images" / "7.png")
    (tmp_path / "images" / "8.png").write_text("no image")
    content["images"].append({**content["images"][0], "file_name": "10.png"})
    content["annotations"][0]["image_id"] = 99
    content["annotations"][1]["category_id"] = [1]
    content["annotations"][3]["id"] = 3
    content["categories"] = [*content["categories"], {"id": 7, "name": "green"}, {"name": "black"}]
    path.write_text(json.dumps(content))
    with pytest.raises(DetectionError) as error:
        read_coco(path, tmp_path / "images")
    message = str(error.value)
    for part in (
        "7 missing images",
        "4.png, and 2 more)",
        "1 images of another size (7.png is 20x30, said 64x48)",
        "1 images that cannot be read",
        "1 images with the id of another one (10.png has id 10)",
        "1 annotations of images that are not listed (annotation 1: image 99)",
        "1 annotations of categories that are not listed (annotation 2: [1])",
        "1 annotations with the id of another one (id 3)",
        "1 ids that two categories share (7)",
        "1 categories without an id and a name",
    ):
        assert part in message, part


def test_a_file_that_is_missing_no_json_or_a_list(tmp_path):
    with pytest.raises(DetectionError, match="must be a readable file, but: No such file"):
        read_coco(tmp_path / "none.json", tmp_path)
    path = tmp_path / "some.json"
    path.write_text("{")
    with pytest.raises(DetectionError, match="must be JSON"):
        read_coco(path, tmp_path)
    path.write_text("[]")
    with pytest.raises(DetectionError, match="but is a list"):
        read_coco(path, tmp_path)


def test_nothing_to_learn_from(tmp_path):
    content = document(2)
    for each in content["annotations"]:
        each["iscrowd"] = 1
    assert "must have at least one box to learn from" in refused(tmp_path, content)


def test_a_seeded_share_is_held_out(tmp_path):
    data = cells(tmp_path, 10)
    train, test = divide(data, 0.2, seed=1)
    assert (len(train), len(test)) == (8, 2)
    assert {each.id for each in train.pictures} | {each.id for each in test.pictures} == set(range(10, 20))
    assert divide(data, 0.2, seed=1) == (train, test)
    assert divide(data, 0.2, seed=2)[1] != test
    check_pair(train, test)
    with pytest.raises(DetectionError, match=r"a share of 0\.01 of 10 images must leave some on both sides"):
        divide(data, 0.01)


def test_images_in_both_parts_and_other_categories_are_refused(tmp_path):
    data = cells(tmp_path, 3)
    with pytest.raises(DetectionError, match=r"3 are in both .*0\.png"):
        check_pair(data, data)
    with pytest.raises(DetectionError, match="same categories in the same order"):
        check_pair(data, replace(data, categories=((3, "blue"), (7, "red"))))


def test_pictures_are_scaled_with_their_boxes(tmp_path):
    found = Pictures(cells(tmp_path, 2), Scaling(24, 64))
    image, target = found[0]
    assert image.shape == (3, 24, 32)
    assert image.min() >= 0
    assert image.max() <= 1
    corners = torch.tensor([box.corners for box in found.data.pictures[0].boxes])
    torch.testing.assert_close(target["boxes"], corners / 2)
    left, top, right, bottom = (target["boxes"][0].round().int()).tolist()
    assert image[0, top + 2 : bottom - 2, left + 2 : right - 2].min() > 0.8  # the box still lies on its red square


def test_a_mirrored_picture_has_mirrored_boxes(tmp_path):
    plain, mirrored = pictures(tmp_path, 2), pictures(tmp_path, 2, flip=True)
    torch.manual_seed(0)
    seen = [mirrored[0] for _ in range(10)]
    flipped = [each for each in seen if not torch.equal(each[0], plain[0][0])]
    assert 0 < len(flipped) < 10
    image, target = flipped[0]
    assert torch.equal(image.flip(2), plain[0][0])
    before = plain[0][1]["boxes"]
    expected = torch.stack([SIZE[0] - before[:, 2], before[:, 1], SIZE[0] - before[:, 0], before[:, 3]], dim=1)
    torch.testing.assert_close(target["boxes"], expected)


def test_crowds_are_not_learned_from_and_pictures_may_be_read_anew(tmp_path):
    content = document(2)
    content["annotations"][0]["iscrowd"] = 1
    data = read_coco(write_cells(tmp_path, content), tmp_path / "images")
    kept = Pictures(data, Scaling(48, 64))
    read = Pictures(data, Scaling(48, 64), cache_limit_bytes=0)
    assert kept[0][1]["labels"].tolist() == [2]
    assert torch.equal(kept[0][0], read[0][0])
