"""Optimisers and learning-rate schedules by name; a schedule is a function of the step, so it has no state to save."""

import inspect
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from cafenet.common.options import NotNegative, Positive, check_options
from cafenet.common.suggestions import did_you_mean
from cafenet.errors import TrainingError


@dataclass(frozen=True)
class OptimizerConfig:
    """Which optimiser, with which options."""

    name: str = "SGD"
    """SGD, RMSprop, or any other class of torch.optim."""
    lr: NotNegative = 0.1
    """Highest learning rate."""
    weight_decay: NotNegative = 1e-4
    options: dict[str, Any] = field(default_factory=dict)
    """Everything else, as the class takes it: nesterov, eps, ...; momentum is 0.9 for SGD and RMSprop unless said."""

    def __post_init__(self) -> None:
        check_options(self, TrainingError)
        build_optimizer(self, [torch.zeros(1, requires_grad=True)])


@dataclass(frozen=True)
class ScheduleConfig:
    """How the learning rate moves from `lr`."""

    name: Literal["cosine", "step", "exponential", "constant"] = "cosine"
    """How the rate falls: cosine, step, exponential or constant."""
    final_lr: NotNegative = 1e-5
    """Where cosine ends."""
    milestones: tuple[NotNegative, ...] = (0.5, 0.75)
    """When step decays: shares of the training below 1, or epochs."""
    gamma: Positive = 0.1
    """What step and exponential multiply by."""
    every_epochs: Positive = 1.0
    """How often exponential multiplies."""
    warmup_epochs: NotNegative = 0.0
    """Linear rise from 0 over the first epochs."""

    def __post_init__(self) -> None:
        check_options(self, TrainingError)


def build_optimizer(config: OptimizerConfig, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """An optimiser of torch.optim by name."""
    kinds: dict[str, Any] = {
        name: kind
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
    }
    if config.name not in kinds:
        hint = did_you_mean(config.name, kinds, cutoff=0.4) or f"it has {', '.join(sorted(kinds))}"
        raise TrainingError(f"torch.optim has no optimiser {config.name!r}; {hint}")
    if config.name in ("LBFGS", "SparseAdam"):
        raise TrainingError(f"{config.name} needs a closure or sparse gradients; use SGD, RMSprop or AdamW, say")
    kind = kinds[config.name]
    options: dict[str, Any] = {"momentum": 0.9} if config.name in ("SGD", "RMSprop") else {}
    if config.weight_decay or "weight_decay" in inspect.signature(kind).parameters:
        options["weight_decay"] = config.weight_decay
    try:
        optimizer: torch.optim.Optimizer = kind(parameters, lr=config.lr, **{**options, **config.options})
    except (TypeError, ValueError) as error:
        raise TrainingError(f"optimiser {config.name} does not take these options: {error}") from error
    return optimizer


def shortened(config: ScheduleConfig, num_epochs: float, share: float) -> ScheduleConfig:
    """The schedule of a training of `num_epochs` for one of a share of them: everything comes that much earlier."""
    shares = [milestone if milestone < 1 else milestone / num_epochs for milestone in config.milestones]
    return replace(
        config,
        milestones=tuple(each for each in shares if each < 1),  # others lie behind the end
        every_epochs=share * config.every_epochs,
        warmup_epochs=share * config.warmup_epochs,
    )


def learning_rate(config: ScheduleConfig, lr: float, epoch: float, num_epochs: float) -> float:
    """The learning rate at a (fractional) epoch: cosine from 0.1 to 0 is 0.05 half-way."""
    if epoch < config.warmup_epochs:
        return lr * epoch / config.warmup_epochs
    if config.name == "cosine":
        share = (epoch - config.warmup_epochs) / max(num_epochs - config.warmup_epochs, 1e-9)
        return config.final_lr + (lr - config.final_lr) * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))
    if config.name == "step":
        at = [m * num_epochs if m < 1 else m for m in config.milestones]
        return float(lr * config.gamma ** sum(epoch >= milestone for milestone in at))
    if config.name == "exponential":
        return float(lr * config.gamma ** math.floor((epoch - config.warmup_epochs) / config.every_epochs))
    return lr
