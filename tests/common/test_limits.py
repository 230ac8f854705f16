"""Files that claim more than they hold, or unfold to more than a machine has: refused at once, with the limit named."""

import io
import struct
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from cafenet.cli.main import main
from cafenet.common.limits import IMAGE_PIXELS, check_input_size
from cafenet.data import load_data, train_loader
from cafenet.data.augment import Augmentation
from cafenet.data.image_files import read_image
from cafenet.errors import CheckpointError, DataError, RecipeError
from cafenet.runs.recipe_files import load_recipe
from cafenet.training.checkpoint import FORMAT
from tests.helpers.small_training import supernet_of, trained


@pytest.fixture(autouse=True)
def quick():
    """Nothing here may take longer than a few seconds, though a machine may be busy."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < 10


def recipe(tmp_path: Path, text: str) -> str:
    (tmp_path / "mine.yaml").write_text(text)
    return str(tmp_path / "mine.yaml")


def bomb(depth: int = 12) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, depth)]
    return "\n".join(lines) + f"\ndata: {{options: *a{depth - 1}}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: " + "[" * 3000 + "]" * 3000, r"the depth of the recipe .* at most 30, .* CAFENET_MAX_YAML_DEPTH"),
        ("data: " + "{a: " * 3000 + "}" * 3000, "CAFENET_MAX_YAML_DEPTH"),
        (
            bomb(),
            r"the values of the recipe .*, aliases written out, must be at most 100,000, .*CAFENET_MAX_YAML_NODES",
        ),
        ("seed: 0 # " + "x" * 2**21, r"the bytes of the recipe .* must be at most 1,048,576, .*CAFENET_MAX_YAML_BYTES"),
        ("seed: &a [*a]", r"\*a stands for itself"),
        ("seed: 2001-99-99", "must be YAML, but: month must be in"),
    ],
    ids=["lists", "dicts", "aliases", "bytes", "itself", "date"],
)
def test_yaml(text, message, tmp_path):
    with pytest.raises(RecipeError, match=message):
        load_recipe(recipe(tmp_path, text))


@pytest.mark.parametrize(
    "flag", ["--data.options=" + "[" * 3000 + "]" * 3000, "--model.options={a: " + "[" * 900 + "]" * 900 + "}"]
)
def test_deep_flags(flag, capsys):
    assert main(["run", "demo", flag]) == 2
    assert "CAFENET_MAX_YAML_DEPTH" in capsys.readouterr().err


def test_a_limit_can_be_raised(tmp_path, monkeypatch):
    name = recipe(tmp_path, "data: {options: " + "{a: " * 35 + "1" + "}" * 36)
    with pytest.raises(RecipeError, match="would be 31; if that is meant, set the environment variable"):
        load_recipe(name)
    monkeypatch.setenv("CAFENET_MAX_YAML_DEPTH", "100")
    assert load_recipe(name).data.options["a"]
    monkeypatch.setenv("CAFENET_MAX_YAML_DEPTH", "deep")
    with pytest.raises(RecipeError, match="CAFENET_MAX_YAML_DEPTH must be a whole number, but is 'deep'"):
        load_recipe(name)


def npy(shape: str, dtype: str = "|u1", content: bytes = b"") -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (64 - (len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content


def npz(path: Path, images: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    labels = io.BytesIO()
    np.save(labels, np.arange(4) % 2)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("images.npy", images)
        archive.writestr("labels.npy", labels.getvalue())


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            npy("(100000000000, 1, 1)"),
            r"the bytes of images in .* at most 34,359,738,368, but would be 100,000,000,000",
        ),
        (npy("(4, 10000, 10000)"), "images claims 400,000,000 bytes"),
        (npy("(-4, 8, 8)"), "must be an npz file|must be"),
        (npy("(4, 8, 8)", content=bytes(10)), "images claims 256 bytes"),
        (b"\x93NUMPY", "cannot be read"),
        (b"", "cannot be read"),
    ],
    ids=["100 GB", "400 MB", "negative", "short", "no header", "empty"],
)
def test_npz(images, message, tmp_path):
    for part in ("train", "test"):
        npz(tmp_path / f"{part}.npz", images)
    with pytest.raises(DataError, match=message):
        load_data(f"npz:{tmp_path}")


def test_npz_that_unfolds(tmp_path, monkeypatch):
    monkeypatch.setenv("CAFENET_MAX_ARRAY_BYTES", "1000000")
    for part in ("train", "test"):
        npz(tmp_path / f"{part}.npz", npy("(4, 1000, 1000)", content=bytes(4_000_000)), zipfile.ZIP_DEFLATED)
    with pytest.raises(DataError, match="set the environment variable CAFENET_MAX_ARRAY_BYTES"):
        load_data(f"npz:{tmp_path}")
    monkeypatch.delenv("CAFENET_MAX_ARRAY_BYTES")
    assert len(load_data(f"npz:{tmp_path}").train) == 4


def test_a_single_array_of_100_gb(tmp_path):
    (tmp_path / "one.npz").write_bytes(npy("(100000000000,)"))
    with pytest.raises(DataError, match="but holds a single array"):
        load_data(f"npz:{tmp_path / 'one.npz'}")


def png(width: int, height: int) -> bytes:
    """A picture of one colour; its pixels take a thousandth of their size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packer = zlib.compressobj(1)
    rows = b"".join(packer.compress(bytes(1 + width)) for _ in range(height)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_a_large_picture(tmp_path, monkeypatch):
    (tmp_path / "large.png").write_bytes(png(12_000, 12_000))
    with pytest.raises(
        DataError, match=r"the pixels of .*large.png must be at most 89,478,485, but would be 144,000,000"
    ):
        read_image(tmp_path / "large.png")
    (tmp_path / "small.png").write_bytes(png(40, 30))
    monkeypatch.setenv(IMAGE_PIXELS.variable, "1000")
    with pytest.raises(DataError, match=r"set the environment variable CAFENET_MAX_IMAGE_PIXELS"):
        read_image(tmp_path / "small.png")
    monkeypatch.setenv(IMAGE_PIXELS.variable, "1200")
    assert read_image(tmp_path / "small.png").shape == (3, 30, 40)


@pytest.mark.parametrize("size", [[3, 100_000, 100_000], [10**30], [2] * 200])
def test_huge_inputs(size, capsys):
    with pytest.raises(RecipeError, match="CAFENET_MAX_INPUT_NUMBERS"):
        check_input_size(size, RecipeError)
    assert main(["run", "demo", f"--model.input_size={size}"]) == 2
    assert "the numbers of an input of size" in capsys.readouterr().err
    assert main(["inspect", "cafenet:cifar_vgg19", "--input", ",".join(map(str, size))]) == 2
    assert "CAFENET_MAX_INPUT_NUMBERS" in capsys.readouterr().err


def test_huge_size_of_images():
    with pytest.raises(DataError, match="CAFENET_MAX_IMAGE_PIXELS"):
        load_data("celeba:absent", size=[100_000, 100_000])


@pytest.mark.parametrize(
    "words",
    [
        ["report", "x" * 5000],
        ["dashboard", "x" * 5000],
        ["export", "x" * 5000, "model.pt"],
        ["run", "x" * 5000],
        ["run", "x" * 5000 + ".yaml"],
        ["detect", "x" * 5000],
        ["run", "demo", "--data.source=npz:" + "x" * 5000],
        ["run", "demo", "--data.source=folder:" + "x" * 5000],
        ["run", "demo", "--data.source=celeba:" + "x" * 5000],
    ],
    ids=lambda words: f"{words[0]}-{words[-1][:25]}",
)
def test_names_that_are_too_long(words, capsys):
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("kind", ["npz", "folder", "celeba", "cifar10"])
def test_data_under_a_name_that_is_none(kind):
    for path in ("x" * 5000, "a\0b"):
        with pytest.raises(DataError):
            load_data(f"{kind}:{path}")


def test_huge_padding(capsys):
    data = load_data("fashion").train
    assert train_loader(data, 4, Augmentation(padding=28))
    with pytest.raises(
        DataError, match=r"padding must be at most the shorter side of the images, 28, .* but is 100000"
    ):
        train_loader(data, 4, Augmentation(padding=100_000))
    assert main(["run", "demo", "--data.augmentation.padding=100000"]) == 2
    assert "padding must be at most the shorter side" in capsys.readouterr().err


def crafted(content: dict, **changes: object) -> dict:
    changed = {**content, **changes}
    return {key: value for key, value in changed.items() if value is not ...}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"format_version": ...},
            "must have format version 1, but has None; use another directory, or remove it to begin again",
        ),
        ({"format_version": "1"}, "must have format version 1, but has '1'"),
        ({"identity": ...}, "belongs to another run"),
        ({"identity": [1]}, "belongs to another run"),
        ({"model": ...}, "must hold the state of this training, but does not: KeyError"),
        ({"model": {}}, "must hold the state of this training, but does not: RuntimeError"),
        ({"model": 3}, "must hold the state of this training, but does not"),
        ({"optimizer": {}}, "must hold the state of this training, but does not: KeyError"),
        ({"step": -5}, "it stands at step -5 of 8"),
        ({"step": 10**9}, "it stands at step 1000000000 of 8"),
        ({"step": "3"}, "it stands at step '3' of 8"),
        ({"rng": []}, "must hold the state of this training, but does not: ValueError: it has no random states"),
        ({"generator": torch.zeros(3)}, "must hold the state of this training, but does not"),
    ],
)
def test_crafted_checkpoints(changes, message, tmp_path):
    trained(supernet_of(), tmp_path, max_steps=2)
    content = torch.load(tmp_path / "supernet.pt", weights_only=True)
    assert content["format"] == FORMAT
    torch.save(crafted(content, **changes), tmp_path / "supernet.pt")
    with pytest.raises(CheckpointError, match=message):
        trained(supernet_of(), tmp_path)


def test_a_compressed_checkpoint(tmp_path):
    trained(supernet_of(), tmp_path, max_steps=2)
    whole = (tmp_path / "supernet.pt").read_bytes()
    with (
        zipfile.ZipFile(io.BytesIO(whole)) as source,
        zipfile.ZipFile(tmp_path / "supernet.pt", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(CheckpointError, match="is compressed"):
        trained(supernet_of(), tmp_path)
