"""Folders of images and the official files of CIFAR, through torchvision."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from cafenet.common.torchvision_compat import import_torchvision
from cafenet.data import load_cifar10, load_cifar100, load_data, load_image_folder
from cafenet.data.image_files import ImageFiles
from cafenet.errors import DataError
from tests.helpers.pictures import write_image


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two classes, three training images and one for tests each."""
    for folder, per_class in (("train", 3), ("val", 1)):
        for number, name in enumerate(("bee", "ant")):
            for image in range(per_class):
                write_image(tmp_path / folder / name / f"{image}.png", (9 + image, 8), seed=10 * number + image)
    return tmp_path


def test_imagenet_layout(tree: Path):
    sets = load_image_folder(tree)
    assert sets.train.classes == ("ant", "bee")
    assert sets.train.targets.tolist() == [0, 0, 0, 1, 1, 1]
    assert [tuple(image.shape) for image in sets.train.images] == [(3, 9, 8), (3, 10, 8), (3, 11, 8)] * 2
    assert len(sets.test) == 2
    assert sets.train.mean == (0.485, 0.456, 0.406)


def test_images_of_one_size_are_one_tensor_if_they_fit(tree: Path):
    assert load_image_folder(tree, size=(6, 6)).train.images.shape == (6, 3, 6, 6)
    lazy = load_image_folder(tree, size=(6, 6), cache_limit_bytes=0).train
    assert isinstance(lazy.images, ImageFiles)
    assert torch.equal(torch.stack(list(lazy.images)), load_image_folder(tree, size=(6, 6)).train.images)


def test_directory_that_is_missing(tree: Path):
    with pytest.raises(
        DataError, match=r"must hold the directories train and val, .* no train and no val; .*not exist"
    ):
        load_image_folder(tree / "absent")
    (tree / "val").rename(tree / "test")
    with pytest.raises(DataError, match="but there is no val; it holds test, train"):
        load_image_folder(tree)
    assert len(load_image_folder(tree, test_folder="test").test) == 2


def test_class_without_images(tree: Path):
    for path in (tree / "train" / "bee").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="Found no valid file for the classes bee"):
        load_image_folder(tree)


def test_folder_without_classes(tmp_path: Path):
    for folder in ("train", "val"):
        write_image(tmp_path / folder / "0.png")
    with pytest.raises(DataError, match="train must hold one directory of images a class"):
        load_image_folder(tmp_path)


def test_other_classes_in_the_test_set(tree: Path):
    (tree / "val" / "bee").rename(tree / "val" / "wasp")
    with pytest.raises(DataError, match=r"the same classes, but only .*/train has bee, only .*/val has wasp"):
        load_image_folder(tree)


def test_damaged_image_is_named(tree: Path):
    (tree / "train" / "bee" / "1.png").write_bytes(b"hello")
    with pytest.raises(DataError, match=r"but .*bee/1\.png is not"):
        load_image_folder(tree)


# CIFAR


def write_cifar10(root: Path) -> np.ndarray:
    """The official layout with four images a file; returns the pixels of all training images, as (N, 3, 32, 32)."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    rng = np.random.default_rng(0)
    every = []
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        pixels = rng.integers(256, size=(4, 3072), dtype=np.uint8)
        labels = [(2 * number + n) % 10 for n in range(4)]
        (folder / name).write_bytes(pickle.dumps({"data": pixels, "labels": labels}))
        every.append(pixels.reshape(4, 3, 32, 32))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {n}" for n in range(10)]}))
    return np.concatenate(every[:5])


@pytest.fixture
def _unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of our own instead of the published ones, whose checksums torchvision compares."""
    import_torchvision()
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda path, *rest: Path(path).is_file())


@pytest.mark.usefixtures("_unchecked")
def test_cifar10(tmp_path: Path):
    pixels = write_cifar10(tmp_path)
    sets = load_cifar10(tmp_path)
    assert np.array_equal(sets.train.images.numpy(), pixels)
    assert sets.train.images.is_contiguous()
    assert sets.train.targets[:5].tolist() == [0, 1, 2, 3, 2]
    assert len(sets.test) == 4
    assert sets.test.classes[7] == "class 7"
    assert sets.train.mean == (0.4914, 0.4822, 0.4465)
    assert torch.equal(load_data(f"cifar10:{tmp_path}").train.images, sets.train.images)


@pytest.mark.usefixtures("_unchecked")
def test_cifar100(tmp_path: Path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    pixels = np.zeros((100, 3072), dtype=np.uint8)
    for name in ("train", "test"):
        (folder / name).write_bytes(pickle.dumps({"data": pixels, "fine_labels": list(range(100))}))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": [str(n) for n in range(100)]}))
    sets = load_cifar100(tmp_path)
    assert (len(sets.train), len(sets.train.classes)) == (100, 100)


def test_cifar_that_is_missing_or_damaged(tmp_path: Path):
    with pytest.raises(DataError, match="the directory of CIFAR10 must exist"):
        load_cifar10(tmp_path / "absent")
    with pytest.raises(
        DataError, match=r"must hold the directory cifar-10-batches-py .* unpack cifar-10-python.tar.gz"
    ):
        load_cifar10(tmp_path)
    write_cifar10(tmp_path)  # with other checksums than the published ones
    with pytest.raises(DataError, match="complete and undamaged"):
        load_cifar10(tmp_path)


# names


@pytest.mark.parametrize("name", ["imagenet", "fashion:here", "npz", "npz:", ""])
def test_name_of_no_data_set(name: str):
    with pytest.raises(DataError, match=r"a data set must be one of fashion, npz:PATH, .* but got"):
        load_data(name)


def test_near_miss_of_a_name():
    with pytest.raises(DataError, match=r"did you mean cifar10\?"):
        load_data("cifar_10:data")


def test_names_lead_to_data(tree: Path):
    assert len(load_data("fashion").train) == 6000
    assert load_data(f"folder:{tree}", size=(5, 5)).train.images.shape == (6, 3, 5, 5)
    with pytest.raises(DataError, match="fashion takes no options, but got size"):
        load_data("fashion", size=3)
