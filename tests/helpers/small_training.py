"""What the tests of training share: small networks, data that can be learned, supernets and runs of them."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import cafenet
from cafenet import WidthSpace
from cafenet.space.bins import Bins, uniform_bins
from cafenet.space.layout import Subnet
from cafenet.supernet.candidate_choice import Choice, Exact
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.sharing import LocallyFree, Sharing
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.train import train_supernet
from cafenet.training.config import TrainConfig
from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig

NUM_CLASSES = 4
STEADY = ScheduleConfig("constant")


class Plain(nn.Module):
    """Two convolutions with batch norm, dropout and a classifier, on images of 4x4: 16 places everywhere."""

    def __init__(self, dropout: float = 0.25) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm_one = nn.BatchNorm2d(8)
        self.two = nn.Conv2d(8, 12, 3, padding=1, bias=False)
        self.norm_two = nn.BatchNorm2d(12)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(12, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm_one(self.one(x)))
        x = functional.relu(self.norm_two(self.two(x)))
        return self.head(self.dropout(x.mean((2, 3))))


class Residual(nn.Module):
    """A stem of 8 channels and a block with 6 inside that is added to it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.narrow = nn.Conv2d(8, 6, 3, padding=1, bias=False)
        self.norm_narrow = nn.BatchNorm2d(6)
        self.widen = nn.Conv2d(6, 8, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(0.25)
        self.head = nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.stem(x)))
        x = functional.relu(x + self.widen(functional.relu(self.norm_narrow(self.narrow(x)))))
        return self.head(self.dropout(x.mean((2, 3))))


class Gated(nn.Module):
    """Half of 12 channels gates the other half: they are kept in pairs, 6 units of 2 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, 12, 3, padding=1)
        self.outer = nn.Conv2d(6, 8, 3, padding=1)
        self.head = nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.relu(self.outer(functional.glu(self.inner(x), dim=1))).mean((2, 3)))


class WithoutNorm(nn.Module):
    """No batch norm and no dropout: the loss of a batch is the mean of the losses of its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 8, 3, padding=1)
        self.two = nn.Conv2d(8, 12, 3, padding=1)
        self.head = nn.Linear(12, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.relu(self.two(functional.relu(self.one(x)))).mean((2, 3)))


def built(kind: type[nn.Module] = Plain, seed: int = 0, **options: Any) -> nn.Module:
    """A network with weights that depend on the seed alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kind(**options)


def traced(model: nn.Module) -> WidthSpace:
    """The width space of a network for images of 4x4."""
    return cafenet.trace(model, torch.zeros(1, 3, 4, 4))


def batch(size: int = 16, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Noise images with a pattern of their class, which can be learned."""
    generator = torch.Generator().manual_seed(seed)
    templates = torch.randn(NUM_CLASSES, 3, 4, 4, generator=torch.Generator().manual_seed(99))
    labels = torch.randint(NUM_CLASSES, (size,), generator=generator)
    return templates[labels] + 0.5 * torch.randn(size, 3, 4, 4, generator=generator), labels


def data(size: int = 64, seed: int = 0) -> TensorDataset:
    """The same as a data set."""
    return TensorDataset(*batch(size, seed))


def supernet_of(
    model: nn.Module | None = None,
    sharing: Sharing | None = None,
    choice: Choice | None = None,
    *,
    bins: Bins | None = None,
    seed: int = 0,
) -> Supernet:
    """A supernet in train mode; by default of `Plain` in 4 bins a group, r = 1, exact choice."""
    model = built() if model is None else model
    space = traced(model)
    bins = uniform_bins(space, 4) if bins is None else bins
    supernet = Supernet(model, space, bins, sharing or LocallyFree(1), choice=choice or Exact(), seed=seed)
    return supernet.train()


def config(**options: Any) -> TrainConfig:
    """Steps of 8 examples at a steady learning rate, every one of them logged."""
    lr = options.pop("lr", 0.05)
    return TrainConfig(
        **{
            "epochs": 1,
            "batch_size": 8,
            "optimizer": OptimizerConfig(lr=lr),
            "schedule": STEADY,
            "log_every": 1,
            **options,
        }
    )


def sampling(**options: Any) -> SamplingConfig:
    """Widths from the first step on, over all bins where no budgets are known."""
    return SamplingConfig(**{"full_share": 0.0, **options})


def trained(supernet: Supernet, directory: Path | None = None, **options: Any) -> Supernet:
    """The supernet after a training; options of the loop and of sampling by name, others of the config."""
    loop = {name: options.pop(name) for name in ("loss", "max_steps") if name in options}
    examples = options.pop("data", None)
    names = [field.name for field in fields(SamplingConfig)]
    widths = sampling(**{name: options.pop(name) for name in names if name in options})
    train_supernet(
        supernet,
        data() if examples is None else examples,
        config(**options),
        sampling=widths,
        directory=directory,
        quiet=True,
        **loop,
    )
    return supernet


def log_of(directory: Path) -> list[dict[str, Any]]:
    """The lines of a run's log."""
    return [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]


def channels_of(space: WidthSpace, subnet: Subnet) -> dict[str, list[int]]:
    """The channels that a subnet keeps, by group name."""
    return {
        group.name: np.flatnonzero(np.isin(group.unit_of_channel, units)).tolist()
        for group, units in zip(space.groups, subnet.units, strict=True)
    }


def assert_same_state(left: nn.Module, right: nn.Module) -> None:
    """All parameters and buffers are equal, bit for bit."""
    first, second = left.state_dict(), right.state_dict()
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
