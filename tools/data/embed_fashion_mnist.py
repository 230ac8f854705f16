"""Make `src/cafenet/data/fashion_mnist.npz`: 600 training and 200 test images of each of the ten classes.

The source is Debian's package `dataset-fashion-mnist` (MIT licence):

    apt-get install dataset-fashion-mnist
    python tools/data/embed_fashion_mnist.py

Without installing, `apt-get download` the package, unpack it with `dpkg-deb -x` and pass the directory with the four
`idx` files. The same source gives the same file, byte for byte (given the same zlib).
"""

import argparse
import gzip
from pathlib import Path

import numpy as np

SOURCE = Path("/usr/share/datasets/fashion-mnist")
TARGET = Path(__file__).parents[2] / "src" / "cafenet" / "data" / "fashion_mnist.npz"
CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
PER_CLASS = {"train": 600, "t10k": 200}
SEED = 0


def read_idx(path: Path) -> np.ndarray:
    """An array in the `idx` format: two zero bytes, 8 for uint8, the number of dimensions, their sizes, the values."""
    content = gzip.decompress(path.read_bytes())
    if content[:3] != b"\0\0\x08":
        raise ValueError(f"{path} must be an idx file of bytes, but begins with {content[:4]!r}")
    num_dimensions = content[3]
    shape = np.frombuffer(content, ">i4", num_dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * num_dimensions).reshape(shape)


def choose(labels: np.ndarray, per_class: int) -> np.ndarray:
    """Example numbers in order, `per_class` of every class, drawn with the seed."""
    rng = np.random.default_rng(SEED)
    drawn = [rng.permutation(np.flatnonzero(labels == label))[:per_class] for label in range(len(CLASSES))]
    return np.sort(np.concatenate(drawn))


def embed(source: Path, target: Path) -> None:
    """Write the subset."""
    arrays = {"classes": np.array(CLASSES)}
    for part, name in (("train", "train"), ("t10k", "test")):
        labels = read_idx(source / f"{part}-labels-idx1-ubyte.gz")
        chosen = choose(labels, PER_CLASS[part])
        arrays[f"{name}_images"] = read_idx(source / f"{part}-images-idx3-ubyte.gz")[chosen]
        arrays[f"{name}_labels"] = labels[chosen]
    np.savez_compressed(target, **arrays)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, nargs="?", default=SOURCE, help=f"directory of the idx files ({SOURCE})")
    embed(parser.parse_args().source, TARGET)
