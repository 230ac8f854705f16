"""The supernet that scoring is measured on: a small CNN on CIFAR-10 at 16x16, trained for some minutes and kept."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import avg_pool2d
from torch.utils.data import DataLoader

import cafenet
from benchmarks.common.places import CIFAR
from cafenet.data import Augmentation, ImageData, eval_loader, hold_out, load_data, train_loader
from cafenet.space.bins import flops_sensitive_bins
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.sharing import LocallyFree
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.train import train_supernet
from cafenet.training.config import TrainConfig

SIZE = 16
EPOCHS = 40
BETA = 1.0


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained supernet, the data to recalibrate it on and the data to score it on."""

    supernet: Supernet
    train: DataLoader[Any]
    validation: DataLoader[Any]


def small_cnn(num_classes: int = 10) -> nn.Module:
    """Six convolutions with batch norm, 2.5M FLOPs at 16x16 (one multiply-add is one)."""
    layers: list[nn.Module] = []
    channels = 3
    for number, width in enumerate((16, 16, 32, 32, 64, 64)):
        layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if number in (1, 3) else []
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))


def trained_supernet(cache: Path, *, quick: bool = False) -> Trained:
    """The supernet of `cache`, trained (further) where that is not finished."""
    train, validation = (shrunk(data) for data in hold_out(load_data(f"npz:{CIFAR}").train))
    torch.manual_seed(0)
    model = small_cnn()
    space = cafenet.trace(model, torch.randn(1, 3, SIZE, SIZE))
    supernet = Supernet(model, space, flops_sensitive_bins(space, BETA), LocallyFree(1))
    batches = train_loader(train, 256, Augmentation(padding=2, flip=True))
    config = TrainConfig(epochs=0.5 if quick else EPOCHS)
    train_supernet(
        supernet,
        batches,
        config,
        sampling=SamplingConfig(full_share=0.0),
        directory=cache / f"supernet-{config.epochs:g}",
        quiet=True,
    )
    return Trained(supernet, eval_loader(train), eval_loader(validation))


def shrunk(data: ImageData) -> ImageData:
    """The images at 16x16."""
    assert isinstance(data.images, torch.Tensor)
    return replace(data, images=avg_pool2d(data.images.float(), data.images.shape[-1] // SIZE).round().byte())
