"""Fashion-MNIST in small: 6,000 + 2,000 grey images of 28x28 in ten classes, a part of this package.

A subset of the data set of Zalando (MIT licence, see fashion_mnist.LICENSE), equally many images of every class;
`tools/data/embed_fashion_mnist.py` made it. It is what every example runs on, without a download.
"""

from pathlib import Path

from cafenet.data.datasets import DataSets
from cafenet.data.npz import load_npz


def fashion_mnist() -> DataSets:
    """Read the embedded data: 600 training and 200 test images of each class."""
    return load_npz(Path(__file__).with_name("fashion_mnist.npz"), name="Fashion-MNIST subset")
