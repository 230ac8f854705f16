"""A data set keeps its laws, and says all that is wrong at once."""

import dataclasses

import pytest
import torch

from cafenet.data import DataSets, ImageData, to_rgb
from cafenet.data.datasets import channel_statistics
from cafenet.errors import DataError
from tests.helpers.pictures import pixels, small_data


def test_subset_takes_examples_in_the_order_asked_for():
    data = small_data()
    part = data.subset([5, 0])
    assert torch.equal(part.images, data.images[[5, 0]])
    assert part.targets.tolist() == [2, 0]
    assert (part.classes, part.mean, len(part)) == (data.classes, data.mean, 2)
    several = dataclasses.replace(data, images=tuple(data.images))
    assert torch.equal(several.subset([5, 0]).images[0], data.images[5])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": pixels(11)}, "one target an image, but 11 and 12 were given"),
        ({"images": pixels().float()}, r"must be uint8 of shape \(N, C, H, W\), but are torch.float32"),
        ({"images": pixels()[0]}, r"of shape \[3, 8, 6\]"),
        ({"targets": torch.zeros(12)}, r"must be int64 \(N,\) or float32 \(N, A\), but are torch.float32"),
        (
            {"targets": torch.arange(12)},
            "labels must lie in 0 to 2, the number of classes less one, but lie in 0 to 11",
        ),
        ({"targets": torch.arange(12) % 3 - 1}, "but lie in -1 to 1"),
        ({"targets": torch.zeros(12, 2)}, "a name for each attribute, but 2 have 3 names"),
        ({"targets": torch.full((12, 3), 0.5)}, "attributes must be zeros and ones"),
        ({"mean": (0.5,)}, "one number a channel, but have 1 and 3 for images of 3"),
        ({"std": (0.5, 0.0, 0.5)}, "std must be positive"),
    ],
)
def test_law_that_is_broken(changes: dict, message: str):
    with pytest.raises(DataError, match=message):
        dataclasses.replace(small_data(), **changes)


def test_all_problems_are_said_at_once():
    with pytest.raises(DataError) as raised:
        dataclasses.replace(small_data(), images=pixels(3), targets=torch.tensor([0, 9]), std=(0.0,) * 3)
    for part in ("noise: ", "3 and 2 were given", "lie in 0 to 9", "std must be positive"):
        assert part in str(raised.value)


def test_empty_data_set():
    with pytest.raises(DataError, match="at least one image, but is empty"):
        small_data(0)


def test_class_without_training_images_is_named():
    data = small_data()
    without = data.subset([number for number in range(12) if number % 3 != 1])
    DataSets(data, without)  # a test set may lack a class
    with pytest.raises(DataError, match="every class must have training images, but noise has none of b"):
        DataSets(without, data)


def test_training_and_test_set_of_different_classes():
    data = small_data()
    other = dataclasses.replace(data, classes=("a", "b", "x"))
    with pytest.raises(DataError, match="the same classes, but only noise has c, only noise has x; give both"):
        DataSets(data, other)
    swapped = dataclasses.replace(data, classes=("b", "a", "c"))
    with pytest.raises(DataError, match="noise has them in the order a, b, c and noise in the order b, a, c; give"):
        DataSets(data, swapped)


def test_statistics_by_hand():
    images = torch.zeros(2, 2, 1, 2, dtype=torch.uint8)
    images[0, 0] = 255  # half of channel 0 is white; channel 1 is black
    assert channel_statistics(images) == ((0.5, 0.0), (0.5, 1.0))
    noise = pixels(50)
    mean, std = channel_statistics(noise)
    assert mean == pytest.approx((noise.double() / 255).mean((0, 2, 3)).tolist(), abs=6e-5)
    assert std == pytest.approx((noise.double() / 255).std((0, 2, 3), correction=0).tolist(), abs=6e-5)


def test_grey_images_in_three_channels():
    data = small_data(channels=1)
    coloured = to_rgb(data)
    assert coloured.images.shape == (12, 3, 8, 6)
    assert (coloured.images == data.images).all()
    assert (coloured.mean, coloured.std) == ((0.5,) * 3, (0.25,) * 3)
    with pytest.raises(DataError, match="images of one channel"):
        to_rgb(coloured)


def test_attributes_are_multi_label():
    data = small_data()
    assert not data.is_multi_label
    attributes = torch.zeros(12, 3)
    assert ImageData("faces", data.images, attributes, data.classes, data.mean, data.std).is_multi_label
