"""npz files: both layouts, colours and grey, and every mistake in one sentence."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from cafenet.data import hold_out, load_npz
from cafenet.errors import DataError

CIFAR10 = Path(__file__).parents[3] / "shared" / "data" / "cifar10"


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)


def write_pair(directory: Path, **changes: np.ndarray | None) -> Path:
    """train.npz and test.npz, of six images in two classes; changes go to train.npz."""
    arrays = {"images": noise(6, 4, 5, 3), "labels": np.arange(6) % 2}
    np.savez(directory / "test.npz", **arrays)
    changed = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez(directory / "train.npz", **changed)
    return directory


def test_directory_with_two_files(tmp_path: Path):
    sets = load_npz(write_pair(tmp_path, classes=np.array(["cat", "dog"])))
    assert sets.train.images.shape == (6, 3, 4, 5)
    assert torch.equal(sets.train.images, torch.from_numpy(noise(6, 4, 5, 3)).permute(0, 3, 1, 2))
    assert sets.train.targets.tolist() == [0, 1, 0, 1, 0, 1]
    assert sets.test.classes == ("cat", "dog")
    assert len(sets.train.mean) == 3
    assert sets.test.mean == sets.train.mean


def test_one_file_with_both_sets_in_grey(tmp_path: Path):
    path = tmp_path / "all.npz"
    labels = np.arange(6, dtype=np.uint8) % 3
    np.savez(path, train_images=noise(6, 4, 5), train_labels=labels, test_images=noise(3, 4, 5), test_labels=labels[:3])
    sets = load_npz(path)
    assert sets.train.images.shape == (6, 1, 4, 5)
    assert len(sets.test) == 3
    assert sets.train.targets.dtype == torch.int64
    assert sets.train.classes == ("0", "1", "2")


def test_attributes(tmp_path: Path):
    attributes = np.eye(6, 4, dtype=bool)
    path = tmp_path / "all.npz"
    images = noise(6, 4, 5, 3)
    np.savez(path, train_images=images, train_labels=attributes, test_images=images, test_labels=attributes)
    train = load_npz(path).train
    assert train.is_multi_label
    assert torch.equal(train.targets, torch.eye(6, 4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "must hold the arrays images and labels, but holds images"),
        ({"labels": np.arange(5) % 2}, "one target an image, but 6 and 5 were given"),
        ({"labels": np.linspace(0, 1, 6)}, r"labels of .* must be integers .* but are float64"),
        ({"labels": np.array(list("abcdef"))}, r"labels of .* must be integers"),
        ({"labels": np.arange(6) % 2 - 1}, "but lie in -1 to 0"),
        ({"labels": np.array([0, 2, 0, 2, 0, 2])}, "every class must have training images, but .* has none of 1"),
        ({"classes": np.array(["cat"])}, "labels must lie in 0 to 0"),
        ({"classes": np.array(3)}, r"classes must be a list of names, but has shape \[\]"),
        ({"labels": np.array([0, 1, 0, 1, 0, 2**40])}, "labels must be below 1,000,000, but one is 1,099,511,627,776"),
        ({"images": noise(6, 4, 5, 3) / 255}, r"images of .* must be uint8 .* but are float64"),
        ({"images": noise(6, 3, 4, 5)}, r"must be uint8 of shape .* but are uint8 of shape \[6, 3, 4, 5\]"),
        ({"images": np.array([None] * 6)}, "must be an npz file of plain arrays, but cannot be read"),
    ],
)
def test_file_that_holds_something_else(tmp_path: Path, changes: dict, message: str):
    with pytest.raises(DataError, match=message):
        load_npz(write_pair(tmp_path, **changes))


def test_missing_files(tmp_path: Path):
    with pytest.raises(DataError, match=r"no .*absent exists"):
        load_npz(tmp_path / "absent")
    write_pair(tmp_path)
    (tmp_path / "test.npz").unlink()
    with pytest.raises(DataError, match=r"a training and a test set, but no .*test.npz exists"):
        load_npz(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a zip file"])
def test_damaged_file(tmp_path: Path, content: bytes):
    write_pair(tmp_path)
    (tmp_path / "train.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"train.npz must be an npz file of plain arrays, but cannot be read"):
        load_npz(tmp_path)


def test_truncated_file(tmp_path: Path):
    path = write_pair(tmp_path) / "train.npz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"train.npz must be an npz file"):
        load_npz(tmp_path)


@pytest.mark.skipif(not CIFAR10.exists(), reason=f"the data set is not there: {CIFAR10}")
def test_cifar10_as_npz():
    sets = load_npz(CIFAR10)
    assert sets.train.images.shape == (20000, 3, 32, 32)
    assert (len(sets.test), sets.train.classes[0]) == (5000, "airplane")
    assert sets.train.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=0.002)
    _, validation = hold_out(sets.train)
    assert torch.bincount(validation.targets).tolist() == [200] * 10


def test_files_that_are_no_data_set(tmp_path):
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(DataError, match=r"must be an npz file, as numpy.savez writes it, but holds a single array"):
        load_npz(tmp_path / "single.npy")


def test_a_header_that_is_no_dictionary(tmp_path):
    """NumPy reads a header as Python's literals, and raises what Python's tokeniser does."""
    header = b"{'descr': (\n"
    with zipfile.ZipFile(write_pair(tmp_path) / "train.npz", "w") as archive:
        for name in ("images", "labels"):
            archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(DataError, match="must be an npz file of plain arrays, but cannot be read"):
        load_npz(tmp_path)
