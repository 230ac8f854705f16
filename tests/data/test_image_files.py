"""Images in files: decoded as they are, brought to a size without distortion, kept in memory where they fit."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cafenet.data import ImageData, in_memory
from cafenet.data.image_files import cover, image_files, read_image
from cafenet.errors import DataError
from tests.helpers.pictures import small_data, write_image


def data_of(paths: list[Path], size: tuple[int, int] | None = None) -> ImageData:
    images = image_files([str(path) for path in paths], size)
    return dataclasses.replace(small_data(len(paths)), images=images)


def test_pixels_are_those_of_the_file(tmp_path: Path):
    path = write_image(tmp_path / "a.png", (5, 7), seed=3)
    image = read_image(path)
    assert (image.dtype, image.shape) == (torch.uint8, (3, 5, 7))
    assert np.array_equal(image.permute(1, 2, 0).numpy(), np.asarray(Image.open(path)))


def test_grey_and_transparent_images_become_rgb(tmp_path: Path):
    Image.new("L", (4, 4), 77).save(tmp_path / "grey.png")
    Image.new("RGBA", (4, 4), (1, 2, 3, 50)).save(tmp_path / "glass.png")
    assert (read_image(tmp_path / "grey.png") == 77).all()
    assert read_image(tmp_path / "glass.png")[:, 0, 0].tolist() == [1, 2, 3]


def test_cover_by_hand():
    # columns 0 to 7: a square of the middle is columns 2 to 5
    image = torch.arange(8, dtype=torch.uint8).expand(3, 4, 8)
    assert cover(image, (4, 4))[0, 0].tolist() == [2, 3, 4, 5]
    assert cover(image, (4, 8)).shape == (3, 4, 8)
    assert cover(image, (2, 2), 0.5)[0, 0].tolist() == [3, 4]


@pytest.mark.parametrize("shape", [(300, 400), (400, 300), (10, 10), (1, 50), (109, 89)])
@pytest.mark.parametrize("size", [(224, 160), (7, 7)])
@pytest.mark.parametrize("crop_ratio", [1.0, 0.875])
def test_cover_always_gives_the_size(shape: tuple[int, int], size: tuple[int, int], crop_ratio: float):
    image = torch.full((3, *shape), 9, dtype=torch.uint8)
    covered = cover(image, size, crop_ratio)
    assert covered.shape == (3, *size)
    assert (covered == 9).all()


def test_equal_sizes_become_one_tensor(tmp_path: Path):
    data = data_of([write_image(tmp_path / f"{n}.png", seed=n) for n in range(4)])
    cached = in_memory(data)
    assert cached.images.shape == (4, 3, 8, 6)
    assert torch.equal(cached.images, torch.stack(list(data.images)))
    assert torch.equal(cached.targets, data.targets)


@pytest.mark.parametrize("size", [None, (8, 6)])
def test_limit_is_inclusive(tmp_path: Path, size: tuple[int, int] | None):
    # files are kept out of memory by their decoded size: 4 images of 3 x 8 x 6 bytes
    paths = [tmp_path / f"{n}.png" for n in range(4)]
    for path in paths:
        Image.new("RGB", (6, 8)).save(path)
    data = data_of(paths, size)
    num_bytes = 4 * 3 * 8 * 6
    assert isinstance(in_memory(data, num_bytes).images, torch.Tensor)
    assert in_memory(data, num_bytes - 1) is data


def test_subset_of_files_reads_nothing(tmp_path: Path):
    paths = [write_image(tmp_path / f"{n}.png", seed=n) for n in range(4)]
    data = data_of(paths, (4, 4))
    for path in paths:
        path.unlink()
    part = data.subset([3, 1])
    assert [Path(path).name for path in part.images.paths] == ["3.png", "1.png"]
    assert part.images.size == (4, 4)


def test_missing_and_empty_files_are_found_at_once(tmp_path: Path):
    paths = [write_image(tmp_path / f"{n}.png", seed=n) for n in range(3)]
    paths[0].write_bytes(b"")
    paths[2].unlink()
    with pytest.raises(DataError, match=r"but .*0\.png is empty; there is no .*2\.png"):
        data_of(paths)


def test_many_missing_files_are_counted(tmp_path: Path):
    with pytest.raises(DataError, match=r"there is no .*4\.png; and 3 more"):
        image_files([str(tmp_path / f"{n}.png") for n in range(8)])


@pytest.mark.parametrize("size", [None, (4, 4)])
@pytest.mark.parametrize("damage", ["text", "truncated"])
def test_damaged_file_is_named_before_training(tmp_path: Path, damage: str, size: tuple[int, int] | None):
    paths = [write_image(tmp_path / f"{n}.png", (40, 40), seed=n) for n in range(3)]
    content = paths[1].read_bytes()
    paths[1].write_bytes(b"hello" if damage == "text" else content[: len(content) // 2])
    with pytest.raises(DataError, match=r"an image must be readable, but .*1\.png is not .*; replace the file"):
        in_memory(data_of(paths, size))


def test_pillow_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_image(tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"needs Pillow, .* pip install -c constraints.txt '\.\[vision\]'"):
        read_image(path)
