"""A few widths trained from scratch in an orthogonal array, and what each group is worth by them.

Each group of a row has one of two widths, and over all rows every pair of groups has each combination equally often, so
that one training speaks of all groups at once. Smallest example, three groups in four rows: 111, 133, 313, 331.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import hadamard
from torch.nn.functional import cross_entropy

from benchmarks.channel_bench.network import build_network, quarters_to_channels
from benchmarks.common.images import shrunk
from benchmarks.common.places import CIFAR
from cafenet.data import Augmentation, ImageData, eval_loader, load_data, train_loader
from cafenet.scoring.evaluation import predictions
from cafenet.scoring.scorer import FloatArray
from cafenet.space.bins import IntArray
from cafenet.supernet.plain_training import initialised, train_model
from cafenet.training.config import TrainConfig
from cafenet.training.optimizers import OptimizerConfig

LEVELS = (1, 3)
"""Quarters of the two widths of a group."""
NUM_VALIDATION = 4_000
BATCH_SIZE, LR, WEIGHT_DECAY = 128, 0.1, 5e-4


@dataclass(frozen=True)
class Images:
    """CIFAR-10 at one resolution: 16,000 training, 4,000 validation and 5,000 test images."""

    train: ImageData
    validation: ImageData
    test: ImageData
    size: int


def orthogonal_rows(num_groups: int, levels: tuple[int, int] = LEVELS) -> IntArray:
    """Return a folded orthogonal array: main effects of all groups, free of effects of pairs.

    It has twice as many rows as the smallest power of two above the number of groups, 16 for 7.
    """
    order = 1 << num_groups.bit_length()
    half = hadamard(order)[:, 1 : num_groups + 1]
    low, high = levels
    return np.where(np.vstack([half, -half]) > 0, high, low)


def fit_line(rows: IntArray, values: Sequence[float]) -> FloatArray:
    """Fit what each group's logarithm adds to the value, by least squares."""
    logarithms = np.log(rows / 4)
    centred = logarithms - logarithms.mean(axis=0)
    found: FloatArray = np.linalg.lstsq(centred, np.asarray(values) - np.mean(values), rcond=None)[0]
    return found


def images_of(size: int) -> Images:
    """Load CIFAR-10 at 16x16 or 32x32."""
    data = load_data(f"npz:{CIFAR}")
    order = np.random.default_rng(0).permutation(len(data.train))
    validation, train = order[:NUM_VALIDATION], order[NUM_VALIDATION:]
    parts = (data.train.subset(train), data.train.subset(validation), data.test)
    return Images(*(shrunk(part, size) for part in parts), size)


def train_row(images: Images, quarters: Sequence[int], epochs: float, seed: int) -> dict[str, float]:
    """Train one width from scratch; accuracies in percent and losses on the validation and test images."""
    model = initialised(build_network(quarters_to_channels(quarters)), seed)
    config = TrainConfig(
        epochs=epochs,
        batch_size=BATCH_SIZE,
        optimizer=OptimizerConfig(lr=LR, weight_decay=WEIGHT_DECAY),
        seed=seed,
        channels_last=True,
    )
    batches = train_loader(images.train, BATCH_SIZE, Augmentation(padding=images.size // 8, flip=True))
    trained = train_model(model, torch.zeros(1, 3, images.size, images.size), batches, config, quiet=True)
    found = {}
    for name, part in (("validation", images.validation), ("test", images.test)):
        outputs, targets = predictions(trained, eval_loader(part))
        found[name] = round(100 * float((outputs.argmax(dim=1) == targets).double().mean()), 3)
        found[f"{name} loss"] = round(float(cross_entropy(outputs, targets)), 5)
    return found
