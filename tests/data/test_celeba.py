"""CelebA in both layouts, and the mistakes in its tables."""

from pathlib import Path

import numpy as np
import pytest
import torch

from cafenet.data import load_celeba
from cafenet.data.image_files import ImageFiles
from cafenet.errors import DataError
from tests.helpers.pictures import write_image

CELEBA = Path(__file__).parents[3] / "shared" / "data" / "celeba"
NAMES = ["Bald", "Young", "Male"]


def values(num_images: int = 12) -> np.ndarray:
    return np.random.default_rng(0).integers(2, size=(num_images, 3))


def write_images(folder: Path, num_images: int = 12) -> list[str]:
    names = [f"{n + 1:06}.png" for n in range(num_images)]
    for number, name in enumerate(names):
        write_image(folder / name, (22, 18), seed=number)
    return names


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """Twelve images: six to train on, two to validate, four to test."""
    files = write_images(tmp_path / "img_align_celeba")
    rows = [f"{file}  " + " ".join(f"{2 * v - 1:2}" for v in row) for file, row in zip(files, values(), strict=True)]
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(["12", " ".join(NAMES) + " ", *rows, ""]))
    parts = [0, 1, 0, 2, 2, 0, 0, 1, 2, 0, 2, 0]
    lines = [f"{file} {part}" for file, part in zip(files, parts, strict=True)]
    (tmp_path / "list_eval_partition.txt").write_text("\n".join([*lines, ""]))
    return tmp_path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The same as a CSV table."""
    files = write_images(tmp_path / "images")
    rows = [",".join([file, *map(str, row)]) for file, row in zip(files, values(), strict=True)]
    (tmp_path / "attributes.csv").write_text("\n".join([",".join(["image", *NAMES]), *rows, ""]))
    return tmp_path


def test_official_files(official: Path):
    sets = load_celeba(official, size=(12, 10))
    assert sets.train.classes == tuple(NAMES)
    assert torch.equal(sets.train.targets, torch.from_numpy(values()[[0, 2, 5, 6, 9, 11]]).float())
    assert torch.equal(sets.test.targets, torch.from_numpy(values()[[3, 4, 8, 10]]).float())
    assert sets.train.images.shape == (6, 3, 12, 10)
    lazy = load_celeba(official, size=(12, 10), cache_limit_bytes=0)
    assert isinstance(lazy.train.images, ImageFiles)
    assert torch.equal(torch.stack(list(lazy.test.images)), sets.test.images)


def test_table(table: Path):
    sets = load_celeba(table, size=(22, 18))
    assert (len(sets.train), len(sets.test)) == (10, 2)
    everything = torch.cat([sets.train.images, sets.test.images])
    assert len({image.numpy().tobytes() for image in everything}) == 12
    assert torch.equal(load_celeba(table, size=(22, 18)).test.images, sets.test.images)
    # an image still has its own attributes
    number = next(n for n in range(12) if torch.equal(image_of(table, n), sets.test.images[0]))
    assert sets.test.targets[0].tolist() == values()[number].tolist()


def image_of(table: Path, number: int) -> torch.Tensor:
    return ImageFiles((str(table / "images" / f"{number + 1:06}.png"),))[0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("000003.png,0", "000003.png,2", r"attributes.csv must be 0 or 1, but number 1 of image 3 is 2"),
        ("000003.png,0", "000003.png,x", "must be numbers: .*'x'"),
        ("000003.png,0", "000003.png,0,1", "line 4, must hold a file and 3 attributes, but has 5 fields"),
        ("000003.png,0", "absent.png,0", r"there is no .*absent\.png"),
        ("image,", "picture,", "must begin with the columns image and one an attribute"),
    ],
)
def test_mistake_in_a_table(table: Path, old: str, new: str, message: str):
    path = table / "attributes.csv"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DataError, match=message):
        load_celeba(table)


def test_missing_parts(official: Path):
    with pytest.raises(
        DataError, match=r"must hold list_attr_celeba.txt \(official\) or attributes.csv, but has neither"
    ):
        load_celeba(official / "absent")
    partition = official / "list_eval_partition.txt"
    lines = partition.read_text()
    partition.write_text(lines.replace("000002.png 1\n", ""))
    with pytest.raises(DataError, match=r"must name every image, but 1 are missing, the first being 000002\.png"):
        load_celeba(official)
    partition.write_text(lines.replace("000002.png 1", "000002.png 7"))
    with pytest.raises(DataError, match="must divide images into 0, 1 and 2, but has 0, 1, 2, 7"):
        load_celeba(official)
    partition.unlink()
    with pytest.raises(DataError, match=r"there is no .*list_eval_partition\.txt"):
        load_celeba(official)
    partition.write_text(lines)
    (official / "img_align_celeba").rename(official / "elsewhere")
    with pytest.raises(DataError, match=r"must lie in .*img_align_celeba, but there is no such directory"):
        load_celeba(official)


def test_official_table_without_rows(official: Path):
    (official / "list_attr_celeba.txt").write_text("0\nBald\n")
    with pytest.raises(DataError, match="one line an image, but has 2 lines"):
        load_celeba(official)


@pytest.mark.skipif(not CELEBA.exists(), reason=f"the data set is not there: {CELEBA}")
def test_six_thousand_faces():
    sets = load_celeba(CELEBA, cache_limit_bytes=0)
    assert (len(sets.train), len(sets.test), len(sets.train.classes)) == (5000, 1000, 40)
    shares = [data.targets.mean(0) for data in (sets.train, sets.test)]
    assert (shares[0] - shares[1]).abs().max() < 0.03
    assert sets.train.images[0].shape == (3, 224, 160)
    faces = torch.stack([sets.train.images[number] for number in range(0, 5000, 100)]).float() / 255
    assert faces.mean((0, 2, 3)).tolist() == pytest.approx(sets.train.mean, abs=0.06)
