"""The embedded data set is what it says, and the tool makes it."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from cafenet.data import eval_loader, fashion_mnist, hold_out
from tools.data import embed_fashion_mnist

EMBEDDED = Path(__file__).parents[2] / "src" / "cafenet" / "data"


@pytest.fixture(scope="module")
def tool():
    return embed_fashion_mnist


def test_embedded_data():
    sets = fashion_mnist()
    assert sets.train.images.shape == (6000, 1, 28, 28)
    assert torch.bincount(sets.train.targets).tolist() == [600] * 10
    assert torch.bincount(sets.test.targets).tolist() == [200] * 10
    assert sets.train.classes[9] == "Ankle boot"
    assert sets.train.mean == pytest.approx((0.286,), abs=0.002)  # of all 60,000 images: 0.2860 and 0.3530
    assert sets.train.std == pytest.approx((0.353,), abs=0.002)
    assert len({image.numpy().tobytes() for image in (*sets.train.images, *sets.test.images)}) > 7990


def test_embedded_data_is_in_no_order():
    targets = fashion_mnist().train.targets
    assert len(set(targets[:30].tolist())) > 5


def test_classes_can_be_told_apart():
    # nearest class mean: about 70% on the whole data set
    sets = fashion_mnist()
    train, _ = hold_out(sets.train)
    means = torch.stack([train.images[train.targets == number].float().mean(0) for number in range(10)])
    distances = torch.cdist(sets.test.images.float().flatten(1), means.flatten(1))
    assert (distances.argmin(1) == sets.test.targets).float().mean() > 0.6


def test_inputs_have_mean_zero_and_deviation_one():
    (inputs, _) = next(iter(eval_loader(fashion_mnist().train, 6000)))
    assert abs(float(inputs.mean())) < 1e-3
    assert float(inputs.std()) == pytest.approx(1.0, abs=1e-3)


def test_licence_lies_beside_the_data():
    text = (EMBEDDED / "fashion_mnist.LICENSE").read_text()
    assert "Zalando SE" in text
    assert "Permission is hereby granted, free of charge" in text
    assert (EMBEDDED / "fashion_mnist.npz").stat().st_size < 4e6


def write_idx(path: Path, values: np.ndarray) -> None:
    header = b"\0\0\x08" + bytes([values.ndim]) + np.array(values.shape, ">i4").tobytes()
    path.write_bytes(gzip.compress(header + values.tobytes()))


def test_tool_chooses_equally_many_of_each_class(tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tool, "PER_CLASS", {"train": 3, "t10k": 2})
    for part, size in (("train", 50), ("t10k", 30)):
        labels = (np.arange(size) % 10).astype(np.uint8)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", labels)
        images = np.repeat(labels, 4).reshape(size, 2, 2)
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", images)
    for name in ("one", "two"):
        tool.embed(tmp_path, tmp_path / f"{name}.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    with np.load(tmp_path / "one.npz") as arrays:
        assert np.bincount(arrays["train_labels"]).tolist() == [3] * 10
        assert np.bincount(arrays["test_labels"]).tolist() == [2] * 10
        assert (arrays["train_images"] == arrays["train_labels"][:, None, None]).all()


def test_embedded_file_is_the_tools(tool, tmp_path: Path):
    if not tool.SOURCE.is_dir():
        pytest.skip(f"Debian's dataset-fashion-mnist is not installed: {tool.SOURCE}")
    tool.embed(tool.SOURCE, tmp_path / "again.npz")
    with np.load(tmp_path / "again.npz") as again, np.load(EMBEDDED / "fashion_mnist.npz") as embedded:
        assert sorted(again.files) == sorted(embedded.files)
        assert all(np.array_equal(again[name], embedded[name]) for name in again.files)
