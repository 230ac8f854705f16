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
    """An optimiser and its options.

    Examples:
        >>> import cafenet
        >>> cafenet.OptimizerConfig("AdamW", lr=1e-3, options={"eps": 1e-6}).weight_decay
        0.0001
        >>> cafenet.OptimizerConfig("adamw")
        Traceback (most recent call last):
            ...
        cafenet.errors.TrainingError: torch.optim has no optimiser 'adamw'; did you mean AdamW?
    """

    name: str = "SGD"
    """Class of torch.optim: SGD, RMSprop or any other."""
    lr: NotNegative = 0.1
    """Highest learning rate."""
    weight_decay: NotNegative = 1e-4
    """Weight decay of all parameters."""
    options: dict[str, Any] = field(default_factory=dict)
    """All other options of the class, such as nesterov or eps. Momentum is 0.9 for SGD and RMSprop unless it is set
    here.
    """

    def __post_init__(self) -> None:
        check_options(self, TrainingError)
        build_optimizer(self, [torch.zeros(1, requires_grad=True)])


@dataclass(frozen=True)
class ScheduleConfig:
    """The course of the learning rate, which begins at `lr`.

    Examples:
        >>> import cafenet
        >>> from cafenet.training.optimizers import learning_rate
        >>> schedule = cafenet.ScheduleConfig("step", milestones=(0.5,), gamma=0.1)
        >>> [round(learning_rate(schedule, 0.1, epoch, num_epochs=10), 3) for epoch in (0, 4, 5, 9)]
        [0.1, 0.1, 0.01, 0.01]
    """

    name: Literal["cosine", "step", "exponential", "constant"] = "cosine"
    """Kind of the schedule: cosine, step, exponential or constant."""
    final_lr: NotNegative = 1e-5
    """Learning rate at the end of cosine."""
    milestones: tuple[NotNegative, ...] = (0.5, 0.75)
    """Times at which step decays, as shares of the training (below 1) or as epochs."""
    gamma: Positive = 0.1
    """Factor of each decay of step and exponential."""
    every_epochs: Positive = 1.0
    """Number of epochs between two decays of exponential."""
    warmup_epochs: NotNegative = 0.0
    """Number of epochs over which the rate first rises linearly from 0."""

    def __post_init__(self) -> None:
        check_options(self, TrainingError)


def build_optimizer(config: OptimizerConfig, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Creates an optimiser of torch.optim by name.

    Args:
        config: The optimiser and its options.
        parameters: Parameters to optimise.

    Returns:
        The optimiser.

    Raises:
        TrainingError: If there is no such optimiser, or if it does not take the options.
    """
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
    """Adapts a schedule to a shorter training: all its events come earlier by the same factor.

    Args:
        config: Schedule of the whole training.
        num_epochs: Number of epochs of the whole training.
        share: Share of the whole training that the shorter one lasts.

    Returns:
        The schedule of the shorter training.
    """
    shares = [milestone if milestone < 1 else milestone / num_epochs for milestone in config.milestones]
    return replace(
        config,
        milestones=tuple(each for each in shares if each < 1),  # others lie after the end
        every_epochs=share * config.every_epochs,
        warmup_epochs=share * config.warmup_epochs,
    )


def learning_rate(config: ScheduleConfig, lr: float, epoch: float, num_epochs: float) -> float:
    """Computes the learning rate at an epoch. Cosine from 0.1 to 0 is 0.05 half-way.

    Args:
        config: The schedule.
        lr: Highest learning rate.
        epoch: Number of epochs that are done, which may be a fraction.
        num_epochs: Number of epochs of the training.

    Returns:
        The learning rate.
    """
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
