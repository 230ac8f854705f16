"""Loaders give what is written down in numbers, the same after a resumption, from memory and from files."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import cafenet
from cafenet.data import Augmentation, ImageData, eval_loader, in_memory, train_loader
from cafenet.data.image_files import cover, image_files
from cafenet.errors import DataError
from cafenet.space.bins import uniform_bins
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.sharing import LocallyFree
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.train import train_supernet
from cafenet.training.batch_feed import Feed
from cafenet.training.config import TrainConfig
from tests.helpers.pictures import pixels, small_data, write_image

CIFAR = Augmentation(padding=4, flip=True)
IMAGENET = Augmentation(resized_crop=True, flip=True)
ALL = Augmentation(padding=2, flip=True, erasing=0.5)


def of(loader, epoch: int = 0, first_step: int = 0, **options) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The batches that training sees."""
    return [batch for step in Feed(loader, batch_size=1, **options).epoch(epoch, first_step) for batch in step]


def same(left, right) -> bool:
    pairs = zip(left, right, strict=True)
    return all(torch.equal(a, b) and torch.equal(c, d) for (a, c), (b, d) in pairs)


@pytest.fixture
def files(tmp_path: Path) -> ImageData:
    """Twelve images in files, of various sizes."""
    paths = [write_image(tmp_path / f"{n}.png", (20 + n, 30 - n), seed=n) for n in range(12)]
    images = image_files([str(path) for path in paths])
    return dataclasses.replace(small_data(), images=images)


# from memory


def test_scoring_sees_every_image_once_in_order():
    data = small_data(11)
    batches = list(eval_loader(data, 4))
    assert [len(targets) for _, targets in batches] == [4, 4, 3]
    inputs = torch.cat([inputs for inputs, _ in batches])
    assert torch.allclose(inputs, (data.images.float() / 255 - 0.5) / 0.25, atol=1e-5)
    assert torch.equal(torch.cat([targets for _, targets in batches]), data.targets)


def test_training_without_augmentation_sees_the_plain_images():
    data = small_data()
    for inputs, targets in of(train_loader(data, 4)):
        for image, target in zip(inputs, targets, strict=True):
            (number,) = [n for n in range(12) if torch.allclose(image, (data.images[n] / 255 - 0.5) / 0.25, atol=1e-5)]
            assert data.targets[number] == target


def test_training_can_be_resumed_anywhere_and_sharded():
    whole = of(train_loader(small_data(24), 4, ALL), epoch=3)
    torch.rand(7)
    assert same(of(train_loader(small_data(24), 4, ALL), epoch=3, first_step=2), whole[2:])
    shards = [of(train_loader(small_data(24), 4, ALL), epoch=3, rank=rank, world_size=2) for rank in range(2)]
    assert same([batch for pair in zip(*shards, strict=True) for batch in pair], whole)
    assert same(of(train_loader(small_data(24), 4, ALL, num_workers=1), epoch=3), whole)


def test_augmentation_differs_between_epochs_and_seeds_but_not_between_batch_sizes():
    def by_image(batch_size: int, **options) -> dict[int, torch.Tensor]:
        # the class is the number of the image here, so it tells images apart
        data = dataclasses.replace(small_data(24), targets=torch.arange(24), classes=tuple(map(str, range(24))))
        batches = of(train_loader(data, batch_size, ALL), **options)
        return {int(n): image for inputs, targets in batches for n, image in zip(targets, inputs, strict=True)}

    first = by_image(4)
    larger = by_image(8)
    assert all(torch.equal(first[number], larger[number]) for number in range(24))
    for other in (by_image(4, epoch=1), by_image(4, seed=1)):
        assert sum(torch.equal(first[number], other[number]) for number in range(24)) < 6


def test_in_memory_data_need_no_workers():
    assert train_loader(small_data(), 4, CIFAR).num_workers == 0
    assert train_loader(small_data(), 4, IMAGENET, size=(4, 4)).num_workers > 0
    assert eval_loader(small_data(), size=(8, 6)).num_workers == 0
    assert eval_loader(small_data(), size=(4, 4), num_workers=0).num_workers == 0


def test_attributes_come_as_they_are():
    attributes = torch.eye(12, 3)
    data = dataclasses.replace(small_data(), targets=attributes)
    ((_, targets),) = eval_loader(data, 12)
    assert torch.equal(targets, attributes)


# from files


def test_images_of_various_sizes_need_a_size(files: ImageData):
    for loader in (lambda: eval_loader(files), lambda: train_loader(in_memory(files), 4, CIFAR)):
        with pytest.raises(DataError, match="noise must be given a size for its inputs"):
            loader()
    with pytest.raises(DataError, match="must be given a size"):
        train_loader(small_data(), 4, IMAGENET)


@pytest.mark.parametrize("augmentation", [IMAGENET, ALL, Augmentation(resized_crop=True, erasing=1.0)])
def test_files_and_memory_give_the_same(files: ImageData, augmentation: Augmentation):
    cached = in_memory(files)
    assert not isinstance(cached.images, torch.Tensor)
    assert in_memory(files, limit_bytes=1000) is files
    from_files, from_memory = (
        of(train_loader(each, 4, augmentation, size=(16, 12), num_workers=0)) for each in (files, cached)
    )
    assert from_files[0][0].shape == (4, 3, 16, 12)
    assert same(from_files, from_memory)


def test_workers_give_the_same_as_none(files: ImageData):
    def batches(num_workers: int):
        return of(train_loader(files, 4, IMAGENET, size=(16, 12), num_workers=num_workers), epoch=2)

    assert same(batches(2), batches(0))


def test_scoring_takes_the_middle(files: ImageData):
    ((inputs, _),) = eval_loader(files, 12, size=(14, 14), num_workers=0)
    expected = torch.stack([cover(image, (14, 14), 0.875) for image in files.images])
    assert torch.allclose(inputs, (expected / 255 - 0.5) / 0.25, atol=1e-5)


def test_damaged_file_is_named_by_a_worker(files: ImageData):
    Path(files.images.paths[7]).write_bytes(b"no image")
    with pytest.raises(DataError, match=r"an image must be readable, but .*7\.png is not"):
        list(eval_loader(files, 4, size=(8, 8), num_workers=1))


def test_batch_of_none():
    with pytest.raises(DataError, match="batch_size must be 1 or more, but is 0"):
        eval_loader(small_data(), 0)


# in training


def trained(directory: Path, stops: tuple[int | None, ...]) -> dict[str, torch.Tensor]:
    """A small supernet after a training that was interrupted after so many steps."""
    images = pixels(64, (4, 4))
    data = ImageData("noise", images, torch.arange(64) % 2, ("a", "b"), (0.5,) * 3, (0.25,) * 3)
    for steps in stops:
        torch.manual_seed(0)
        pool = (nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), *pool, nn.Linear(8, 2))
        space = cafenet.trace(model, torch.zeros(1, 3, 4, 4))
        supernet = Supernet(model, space, uniform_bins(space, 4), LocallyFree(1))
        config = TrainConfig(epochs=2, batch_size=16)
        loader = train_loader(data, 16, ALL)
        widths = SamplingConfig(full_share=0.0)
        train_supernet(supernet, loader, config, sampling=widths, directory=directory, quiet=True, max_steps=steps)
    return supernet.state_dict()


def test_resumed_training_equals_uninterrupted_training(tmp_path: Path):
    whole = trained(tmp_path / "whole", (None,))
    resumed = trained(tmp_path / "resumed", (3, None))
    assert [name for name in whole if not torch.equal(whole[name], resumed[name])] == []


def test_loading_leaves_the_numbers_of_others_alone():
    states = torch.get_rng_state(), np.random.get_state()[1].tolist()
    of(train_loader(small_data(), 4, ALL))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]
