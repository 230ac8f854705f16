"""Augmentations against the same thing done slowly, and against known numbers."""

import pytest
import torch
from torch.nn import functional

from cafenet.data.augment import Augmentation, augment, erase, normalise, random_crop
from cafenet.errors import DataError
from tests.helpers.pictures import pixels

CIFAR = Augmentation(padding=4, flip=True)


def test_crop_is_a_window_of_the_padded_image():
    images = pixels(50)
    draws = torch.rand(50, 2)
    cropped = random_crop(images, draws, 2)
    for number in range(50):
        padded = functional.pad(images[number], (2, 2, 2, 2))
        row, column = (int(value * 5) for value in draws[number])
        assert torch.equal(cropped[number], padded[:, row : row + 8, column : column + 6])


def test_every_shift_occurs_and_the_middle_changes_nothing():
    image = pixels(1).expand(25, -1, -1, -1)
    draws = torch.cartesian_prod(*[torch.arange(5) / 5 + 0.1] * 2)
    shifted = random_crop(image, draws, 2)
    assert len({each.numpy().tobytes() for each in shifted}) == 25
    assert torch.equal(shifted[12], image[0])


def test_flip_is_left_to_right_for_draws_below_a_half():
    images = pixels(2)
    draws = torch.zeros(2, 8)
    draws[:, 2] = torch.tensor([0.49, 0.51])
    flipped = augment(images, draws, Augmentation(flip=True))
    assert torch.equal(flipped[0], images[0].flip(2))
    assert torch.equal(flipped[1], images[1])


def test_what_is_not_asked_for_does_not_happen():
    images = pixels()
    assert augment(images, torch.rand(12, 8), Augmentation()) is images
    assert not Augmentation(resized_crop=True).draws


def test_augmentation_of_an_example_depends_on_its_own_numbers_alone():
    images, draws = pixels(6), torch.rand(6, 8)
    together = augment(images, draws, CIFAR)
    alone = [augment(images[number : number + 1], draws[number : number + 1], CIFAR) for number in range(6)]
    assert torch.equal(together, torch.cat(alone))


def test_images_given_are_left_alone():
    images = pixels()
    before = images.clone()
    normalise(augment(images, torch.rand(12, 8), CIFAR), (0.5,) * 3, (0.5,) * 3)
    assert torch.equal(images, before)


def test_normalised_numbers_by_hand():
    images = torch.tensor([[0, 255], [51, 102]], dtype=torch.uint8).view(1, 2, 1, 2)
    expected = torch.tensor([[-2.0, 2.0], [0.0, 2.0]]).view(1, 2, 1, 2)
    assert torch.allclose(normalise(images, (0.5, 0.2), (0.25, 0.1)), expected, atol=1e-6)


def test_erased_rectangle_by_hand():
    # area in the middle of 2% to 33% of 100 pixels = 17.5, nearly square: 4 x 4; rows 3 (0.5 x 7) to 6, columns from 0
    draws = torch.tensor([[0, 0, 0, 0.39, 0.5, 0.5, 0.5, 0.0]])
    images = torch.ones(1, 3, 10, 10)
    erased = erase(images.clone(), draws, 0.4)
    zeros = (erased == 0).all(1)[0].nonzero()
    assert zeros.min(0).values.tolist() == [3, 0]
    assert zeros.max(0).values.tolist() == [6, 3]
    assert int((erased == 0).sum()) == 3 * 16
    draws[0, 3] = 0.41
    assert torch.equal(erase(images.clone(), draws, 0.4), images)


def test_erasing_happens_as_often_as_asked_and_stays_within_its_area():
    images = erase(torch.ones(4000, 1, 32, 32), torch.rand(4000, 8), 0.4)
    share = (images == 0).float().mean((1, 2, 3))
    assert (share > 0).float().mean() == pytest.approx(0.4, abs=0.03)
    hit = share[share > 0]
    assert 0.015 < float(hit.min()) < 0.03
    assert 0.30 < float(hit.max()) < 0.35
    edges = (images == 0).any(0)[0]
    assert edges.all()  # every place is reached


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding": -1}, "padding must be a whole number of at least 0, but is -1"),
        ({"erasing": 1.5}, "erasing must be a number from 0 to 1, but is 1.5"),
    ],
)
def test_options_that_make_no_sense(options: dict, message: str):
    with pytest.raises(DataError, match=message):
        Augmentation(**options)
