"""The truth: what every width reaches when it is trained from scratch, seed by seed.

Long labels, with the rule written down before the first training: every width on all 20,000 training images, one
training of its own for each length (30 and 100 epochs, each with its whole schedule, so that a label is what somebody
who trains that long would get), test accuracy after the last epoch. That is 600,000 and 2,000,000 images seen, against
100,000 of the short labels. Widths are taken in a fixed random order, so that what is there at any time
is a fair sample of the hundred.
"""

import time
from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.common.images import shrunk
from benchmarks.common.places import CIFAR
from benchmarks.common.results_file import Results
from benchmarks.ranking.networks import SIZE, Task
from cafenet.data import Augmentation, ImageData, eval_loader, load_data, train_loader
from cafenet.scoring.evaluation import evaluate
from cafenet.supernet.plain_training import initialised, train_model
from cafenet.training.config import TrainConfig
from cafenet.training.optimizers import OptimizerConfig

EPOCHS, BATCH_SIZE = 10, 128
LONG_EPOCHS = (30, 100)
AUGMENTATION = Augmentation(padding=2, flip=True)


def label(results: Results, task: Task, seeds: Sequence[int], numbers: Sequence[int]) -> None:
    """Train the widths of these numbers that have no label yet; test accuracy after the last epoch."""
    start, done = time.monotonic(), 0
    for seed in seeds:
        known = results.rows(f"labels {task.name}")
        missing = [number for number in numbers if str(seed) not in known.get(str(number), {})]
        for place, number in enumerate(missing):
            accuracy = trained_accuracy(task, task.widths(number), seed)
            results.add(f"labels {task.name}", str(number), accuracy, str(seed))
            done += 1
            left = (len(missing) - place - 1) * (time.monotonic() - start) / done
            print(f"labels {task.name}, seed {seed}: width {number}, {left / 60:.0f} min left", flush=True)


def label_long(results: Results, task: Task, seeds: Sequence[int], lengths: Sequence[int], shard: slice) -> None:
    """Train the widths of a shard that have no long label yet, seed by seed and short lengths first."""
    images = shrunk(load_data(f"npz:{CIFAR}").train, SIZE)
    part = f"long labels {task.name}"
    order = np.random.default_rng(0).permutation(len(task.bin_counts))[shard].tolist()
    for seed in seeds:
        for number in order:
            for epochs in sorted(lengths):
                inner = f"{epochs} epochs seed {seed}"
                if inner in results.rows(part).get(str(number), {}):
                    continue
                accuracy = trained_accuracy(task, task.widths(number), seed, images, epochs)
                results.add(part, str(number), accuracy, inner)
                print(f"{part}: width {number}, {inner}: {accuracy}", flush=True)


def trained_accuracy(
    task: Task, widths: dict[str, int], seed: int, images: ImageData | None = None, epochs: float = EPOCHS
) -> float:
    """Percent of the test images, after training from scratch."""
    slim = task.space.extract(widths, model=initialised(task.build(), seed))
    config = TrainConfig(epochs=epochs, batch_size=BATCH_SIZE, optimizer=OptimizerConfig(lr=0.1), seed=seed)
    batches = train_loader(images or task.train, BATCH_SIZE, AUGMENTATION)
    trained = train_model(slim, torch.zeros(1, 3, SIZE, SIZE), batches, config, quiet=True)
    return round(100 * evaluate(trained, eval_loader(task.test))["accuracy"], 3)
