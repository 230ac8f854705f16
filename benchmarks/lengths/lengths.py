"""How long networks are trained, and on which images: a short and a long regime."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.common.images import shrunk
from benchmarks.common.places import CIFAR
from benchmarks.peers.tasks import SCRATCH_EPOCHS, SIZE, Task, task
from benchmarks.ranking.networks import NUM_TRAIN, NUM_VALIDATION
from cafenet.data import ImageData, load_data

EPOCHS = 20
"""Epochs of supernet and slim model together in the short regime, of 10,000 images each."""
TIMES = 5


@dataclass(frozen=True)
class Regime:
    """The length of all trainings, with their data."""

    suffix: str
    """What the names of the results' parts end with."""
    original_epochs: float
    """Epochs of the network that the search is given."""
    epochs: float
    """Epochs of supernet and slim model together."""
    work: Callable[[str], Task]
    """Gives a network with its training and validation images."""
    judging: Callable[[], ImageData]
    """Gives the images that neither trainings nor searches see."""

    def of(self, epochs: float) -> float:
        """Return the length of a training that has so many epochs in the short regime."""
        return round(epochs * self.epochs / EPOCHS, 3)


@cache
def _orders() -> tuple[ImageData, ImageData]:
    """Return the images of CIFAR-10 for training, without and with those that judge the short regime."""
    data = load_data(f"npz:{CIFAR}").train
    order = np.random.default_rng(0).permutation(len(data))
    others = order[NUM_TRAIN + NUM_VALIDATION :]
    whole = np.concatenate([order[:NUM_TRAIN], others])
    return shrunk(data.subset(others), SIZE), shrunk(data.subset(whole), SIZE)


def _judging_short() -> ImageData:
    """Return the 6,000 images that the short regime leaves out."""
    return _orders()[0]


def _judging_long() -> ImageData:
    """Return the 5,000 test images."""
    return task("vgg").test


def _long_work(name: str) -> Task:
    """Return a network with 16,000 images in place of 10,000; the validation images stay."""
    short = task(name)
    return Task(name, _orders()[1], short.validation, short.test)


def _long_epochs(epochs: float) -> float:
    """Return the epochs of 16,000 images that are five times as many steps as epochs of 10,000."""
    return TIMES * epochs * NUM_TRAIN / len(_orders()[1])


SHORT = Regime("", SCRATCH_EPOCHS, EPOCHS, task, _judging_short)


@cache
def long() -> Regime:
    """Five times as many steps in every training, on 16,000 images."""
    return Regime(", five times as long", _long_epochs(SCRATCH_EPOCHS), _long_epochs(EPOCHS), _long_work, _judging_long)
