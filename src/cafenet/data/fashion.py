"""A small part of Fashion-MNIST: 6,000 + 2,000 grey images of 28x28 in ten classes, included in this package.

It is a subset of the data set of Zalando (MIT licence, see fashion_mnist.LICENSE) with equally many images of every
class; `tools/data/embed_fashion_mnist.py` made it. Every example runs on it, without a download.
"""

from pathlib import Path

from cafenet.data.datasets import DataSets
from cafenet.data.npz import load_npz


def fashion_mnist() -> DataSets:
    """Read the included data: 600 training and 200 test images of each class.

    Returns:
        The training and the test set.

    Example:
        >>> from cafenet.data import fashion_mnist
        >>> len(fashion_mnist().train)
        6000
    """
    return load_npz(Path(__file__).with_name("fashion_mnist.npz"), name="Fashion-MNIST subset")
