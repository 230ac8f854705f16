"""Options of a supernet's training, and the rules that they must meet."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch

from cafenet.common.options import (
    Count,
    NumProcesses,
    Positive,
    PositiveInt,
    PositiveShare,
    Rising,
    Seed,
    Share,
    ShareBelowOne,
    check_options,
)
from cafenet.errors import TrainingError
from cafenet.training.distillation import DistillConfig
from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig


@dataclass(frozen=True)
class TrainConfig:
    """Options of a supernet's training.

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
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The optimiser and its options."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """The schedule of the learning rate."""
    label_smoothing: ShareBelowOne = 0.0
    """Label smoothing of the loss, if the loss is given by name."""
    random_share: Share = 0.0
    """Share of the first steps that train a random candidate instead of the best one (lambda in the paper)."""
    sandwich: Count = 0
    """Number of sampled widths per step beside the widest and the smallest (the sandwich rule). 0 trains one width
    per step.
    """
    flops_band: Annotated[tuple[PositiveShare, PositiveShare], Rising()] | Literal["budgets"] | None = "budgets"
    """Band of FLOPs from which widths are sampled, as shares of the model's FLOPs, e.g. [0.3, 0.7]. `budgets` is a
    band around the budgets that will be searched, if these are known. None samples over all bins, as in the
    paper.
    """
    spread: Positive = 0.3
    """Spread of the groups' shares inside a band, as the standard deviation of their logarithms."""
    full_share: ShareBelowOne | None = None
    """Share of the epochs that train the full network first. Its most important channels are then moved to the
    front, and the supernet continues from there. None means 0.3 in a search or a run, and 0, as in the paper, in
    `train_supernet` alone.
    """
    distill: DistillConfig | None = None
    """Options of distillation, in which all widths learn the outputs of the full network that the supernet begins
    with: the given network if it is trained, or the one trained first (`full_share`). In a later stage it is the
    network that the stage before found.
    """
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
    """Number of steps between checkpoints. One more is written at the end, on Ctrl-C and on SIGTERM."""
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
