"""The truth: what every width reaches when it is trained from scratch, seed by seed."""

import time
from collections.abc import Sequence

import torch

from benchmarks.common.results_file import Results
from benchmarks.ranking.networks import SIZE, Task
from cafenet.data import Augmentation, eval_loader, train_loader
from cafenet.scoring.evaluation import evaluate
from cafenet.supernet.plain_training import initialised, train_model
from cafenet.supernet.train import TrainConfig
from cafenet.training.optimizers import OptimizerConfig

EPOCHS, BATCH_SIZE = 10, 128
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


def trained_accuracy(task: Task, widths: dict[str, int], seed: int) -> float:
    """Percent of the test images, after training from scratch."""
    slim = task.space.extract(widths, model=initialised(task.build(), seed))
    config = TrainConfig(epochs=EPOCHS, batch_size=BATCH_SIZE, optimizer=OptimizerConfig(lr=0.1), seed=seed)
    batches = train_loader(task.train, BATCH_SIZE, AUGMENTATION)
    trained = train_model(slim, torch.zeros(1, 3, SIZE, SIZE), batches, config, quiet=True)
    return round(100 * evaluate(trained, eval_loader(task.test))["accuracy"], 3)
