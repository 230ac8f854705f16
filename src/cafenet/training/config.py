"""Options of a training, and the rules that they must meet."""

from dataclasses import dataclass, field
from typing import Literal

import torch

from cafenet.common.options import (
    NumProcesses,
    Positive,
    PositiveInt,
    Seed,
    ShareBelowOne,
    check_options,
)
from cafenet.errors import TrainingError
from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig


@dataclass(frozen=True)
class TrainConfig:
    """Options of a training, of a model or of a supernet.

    Examples:
        >>> import cafenet
        >>> config = cafenet.TrainConfig(epochs=30, batch_size=128, optimizer=cafenet.OptimizerConfig(lr=0.05))
        >>> config.schedule.name, config.optimizer.lr
        ('cosine', 0.05)
        >>> cafenet.TrainConfig(epochs=-1)
        Traceback (most recent call last):
            ...
        cafenet.errors.TrainingError: TrainConfig: epochs must be a number above 0, but is -1
    """

    epochs: Positive = 10
    """Number of passes over the data. A fraction stops inside the last one."""
    batch_size: PositiveInt = 256
    """Number of examples per micro-batch and process."""
    accumulate: PositiveInt = 1
    """Number of micro-batches per step and process."""
    examples_per_step: PositiveInt | None = None
    """Number of examples per step of all processes, in place of `accumulate`. A training that is continued by fewer or
    more processes then takes the same steps. It must be a multiple of `batch_size` times the number of processes."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The optimiser and its options."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """The schedule of the learning rate."""
    label_smoothing: ShareBelowOne = 0.0
    """Label smoothing of the loss, if the loss is given by name."""
    clip_norm: Positive | None = None
    """Largest norm of all gradients together. None does not clip."""
    amp: Literal["bf16", "fp16"] | None = None
    """Number type of autocast, bf16 or fp16, if the device supports it. None does not use autocast."""
    channels_last: bool = False
    """Whether images are stored with their channels last in memory."""
    num_workers: NumProcesses = 0
    """Number of processes that load data. 0 loads in the main process."""
    seed: Seed = 0
    """Seed of all random numbers."""
    checkpoint_every: PositiveInt = 200
    """Number of steps between checkpoints. One more is written after every minute, at the end, on Ctrl-C and on
    SIGTERM."""
    log_every: PositiveInt = 10
    """Number of steps between lines of the log."""

    def __post_init__(self) -> None:
        check_options(self, TrainingError)


def check_device(config: TrainConfig, device: torch.device) -> None:
    """Refuses options that a device does not support.

    Args:
        config: Options of the training.
        device: Device of the model.

    Raises:
        TrainingError: If `amp` is fp16 on a CPU.
    """
    if config.amp == "fp16" and device.type == "cpu":
        raise TrainingError("amp 'fp16' needs a GPU, but the model is on the CPU; use 'bf16' there")
