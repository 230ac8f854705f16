"""The networks and the data that all methods get alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import cafenet
from benchmarks.ranking.networks import Block, cifar_parts
from cafenet.data import Augmentation, ImageData, eval_loader, train_loader
from cafenet.models import load_model
from cafenet.models.mobilenet_v2 import InvertedResidual
from cafenet.scoring.evaluation import evaluate
from cafenet.training.config import TrainConfig
from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig

BATCH_SIZE = 128
SCRATCH_EPOCHS, FINETUNE_EPOCHS = 20, 5
PERCENTS = (50, 25)
SIZE = 16


def resnet(channels: tuple[int, ...] = (12, 24, 48), num_blocks: int = 2) -> nn.Module:
    """A stem and three stages of two blocks, 3.8M FLOPs at 16x16."""
    layers: list[nn.Module] = [nn.Conv2d(3, channels[0], 3, 1, 1, bias=False), nn.BatchNorm2d(channels[0]), nn.ReLU()]
    before = channels[0]
    for stage, after in enumerate(channels):
        for number in range(num_blocks):
            layers.append(Block(before, after, 2 if stage and number == 0 else 1))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


def mobilenet_v2() -> nn.Module:
    """MobileNetV2's blocks in a network of half its depth, 1.0M FLOPs at 16x16; depthwise layers are slow on a CPU."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6()]
    before = 16
    for expansion, after, num_blocks, stride in (
        (1, 8, 1, 1),
        (6, 12, 2, 1),
        (6, 20, 2, 2),
        (6, 32, 2, 1),
        (6, 64, 1, 2),
    ):
        for number in range(num_blocks):
            layers.append(InvertedResidual(before, after, stride if number == 0 else 1, expansion, number > 0))
            before = after
    layers += [nn.Conv2d(before, 256, 1, bias=False), nn.BatchNorm2d(256), nn.ReLU6()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "mobilenet_v2": mobilenet_v2,
    "vgg": lambda: load_model("cafenet:cifar_vgg11", width=0.25),
    "resnet": resnet,
}


@dataclass(frozen=True, eq=False)
class Task:
    """A network and its data."""

    name: str
    train: ImageData
    validation: ImageData
    test: ImageData

    @property
    def example(self) -> Tensor:
        return torch.zeros(1, 3, SIZE, SIZE)

    def build(self, seed: int) -> nn.Module:
        """The network with fresh weights."""
        torch.manual_seed(seed)
        return BUILDERS[self.name]()

    def slim(self, widths: Sequence[int]) -> nn.Module:
        """The network with so many output channels in each of its convolutions, which no tool changes otherwise."""
        model = self.build(seed=0)
        names = [name for name, module in model.named_modules() if isinstance(module, nn.Conv2d)]
        width_of = dict(zip(names, widths, strict=True))
        space = cafenet.trace(model, self.example, verify=False)
        return space.extract({group.name: width_of[group.name] for group in space.groups})

    def batches(self, *, augmented: bool = True) -> DataLoader[Any]:
        """The training images."""
        return train_loader(self.train, BATCH_SIZE, Augmentation(padding=2, flip=True) if augmented else Augmentation())

    def validation_batches(self) -> DataLoader[Any]:
        """The images that methods may choose by."""
        return eval_loader(self.validation)

    def flops(self, model: nn.Module) -> int:
        """FLOPs, which one and the same tool counts for all methods."""
        return int(cafenet.trace(model, self.example, verify=False).flops())

    def accuracy(self, model: nn.Module) -> float:
        """Accuracy on the test images, in percent."""
        return round(100 * evaluate(model, eval_loader(self.test))["accuracy"], 3)

    def params(self, model: nn.Module) -> int:
        """Number of parameters of a plain module."""
        return sum(parameter.numel() for parameter in model.parameters())


@cache
def task(name: str) -> Task:
    """The data are those of the ranking benchmark: 10,000 + 4,000 + 5,000 images of CIFAR-10 at 16x16."""
    return Task(name, *cifar_parts())


def trained_for(epochs: float, seed: int, lr: float = 0.1, num_stages: int = 1) -> TrainConfig:
    """Options of the training of every model, with a warm-up of an epoch in every stage."""
    schedule = ScheduleConfig(warmup_epochs=min(1.0 * num_stages, epochs / 4))
    return TrainConfig(
        epochs=epochs,
        batch_size=BATCH_SIZE,
        optimizer=OptimizerConfig(lr=lr),
        schedule=schedule,
        channels_last=True,
        seed=seed,
    )
