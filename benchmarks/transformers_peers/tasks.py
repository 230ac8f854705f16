"""What is learned: images of CIFAR-10 at 16x16, and the characters of a free text."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import cafenet
from benchmarks.common.places import ROOT
from benchmarks.ranking.networks import cifar_parts
from benchmarks.transformers_peers.networks import LENGTH, NUM_CHARACTERS, SIZE, SmallGPT, SmallViT
from cafenet.data import Augmentation, eval_loader, train_loader
from cafenet.scoring.model_score import model_score

IMAGES_AT_ONCE, TEXTS_AT_ONCE = 128, 32
ORIGINAL_EPOCHS, SUPERNET_EPOCHS, FINETUNE_EPOCHS = 12, 4, 6
NUM_WIDTHS = 200
PACKAGES = ("bible-kjv", "bible-kjv-text")


def of_tokens(output: Tensor, target: Tensor) -> Tensor:
    """The mean cross entropy over all characters, in nats."""
    return nn.functional.cross_entropy(output.transpose(1, 2), target)


def minus_nats(output: Tensor, target: Tensor) -> Tensor:
    """For each text, minus its cross entropy in nats per character, so that higher is better."""
    return -nn.functional.cross_entropy(output.transpose(1, 2), target, reduction="none").mean(1)


@dataclass(frozen=True, eq=False)
class Task:
    """A network, its data, and how it is scored."""

    name: str
    builder: Callable[[], nn.Module]
    example: Tensor
    train: DataLoader[Any] | Dataset[Any]
    validation: Any
    test: Any
    loss: Any
    metric: Any
    factor: float
    batch_size: int

    def build(self, seed: int) -> nn.Module:
        """The network with fresh weights, in eval mode."""
        torch.manual_seed(seed)
        return self.builder().eval()

    def score(self, model: nn.Module) -> float:
        """The score on the test data, in percent or minus nats; higher is better."""
        found = model_score(model, self.test, metric=self.metric, loss=self.loss, name="test data")
        return round(self.factor * found.value, 4)

    def flops(self, model: nn.Module) -> int:
        """FLOPs, which one and the same tool counts for all methods."""
        return int(cafenet.trace(model, self.example, verify=False).flops())


def trained_for(task: Task, epochs: int, seed: int) -> cafenet.TrainConfig:
    """Options of every training: AdamW at one rate, with a warm-up of half an epoch."""
    optimizer = cafenet.OptimizerConfig(name="AdamW", lr=2e-3, weight_decay=0.05)
    schedule = cafenet.ScheduleConfig(warmup_epochs=0.5)
    return cafenet.TrainConfig(
        epochs=epochs, batch_size=task.batch_size, optimizer=optimizer, schedule=schedule, seed=seed
    )


@cache
def vit() -> Task:
    """10,000 images of CIFAR-10 to train on, 4,000 to choose by and 5,000 for the test."""
    train, validation, test = cifar_parts()
    batches = train_loader(train, IMAGES_AT_ONCE, Augmentation(padding=2, flip=True))
    data = batches, eval_loader(validation), eval_loader(test)
    return Task(
        "ViT", SmallViT, torch.zeros(1, 3, SIZE, SIZE), *data, "cross_entropy", "accuracy", 100.0, IMAGES_AT_ONCE
    )


@cache
def gpt() -> Task:
    """4,000 texts of 64 characters to train on, 1,000 to choose by and 2,000 for the test, from other parts."""
    codes = characters()
    parts, start = [], 0
    for count, share in ((4_000, 0.8), (1_000, 0.1), (2_000, 0.1)):
        end = start + int(share * len(codes))
        starts = np.random.default_rng(0).choice(end - start - LENGTH - 1, size=count, replace=False) + start
        rows = torch.from_numpy(np.stack([codes[each : each + LENGTH + 1] for each in starts]))
        parts.append(TensorDataset(rows[:, :-1].contiguous(), rows[:, 1:].contiguous()))
        start = end
    example = torch.zeros(1, LENGTH, dtype=torch.long)
    return Task("GPT", SmallGPT, example, *parts, of_tokens, minus_nats, 1.0, TEXTS_AT_ONCE)


def characters() -> np.ndarray[Any, np.dtype[np.int64]]:
    """The text as numbers below 64: the commonest characters; the last number stands for all others."""
    text = free_text().read_text(encoding="utf-8")
    letters, counts = np.unique(np.frombuffer(text.encode("latin-1", "replace"), dtype=np.uint8), return_counts=True)
    table = np.full(256, NUM_CHARACTERS - 1, dtype=np.int64)
    common = letters[np.argsort(-counts, kind="stable")][: NUM_CHARACTERS - 1]
    table[common] = np.arange(common.size)
    return table[np.frombuffer(text.encode("latin-1", "replace"), dtype=np.uint8)]


def free_text() -> Path:
    """The King James Version, from Debian's packages; CAFENET_TEXT may name another text file."""
    given = os.environ.get("CAFENET_TEXT")
    place = Path(given) if given else ROOT / "build" / "kjv" / "kjv.txt"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", *PACKAGES], cwd=place.parent, check=True)
        for package in place.parent.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, place.parent], check=True)
        program = place.parent / "usr" / "bin" / "bible"
        command = [program, "-f", "-l", "80", "gen1:1-rev22:21"]
        done = subprocess.run(command, cwd=place.parent / "usr" / "lib", check=True, capture_output=True, text=True)
        place.write_text(done.stdout, encoding="utf-8")
    return place


TASKS: dict[str, Callable[[], Task]] = {"ViT": vit, "GPT": gpt}
