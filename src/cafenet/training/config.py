"""The options of a training, and what must hold for them."""

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
    """How a model or a supernet is trained."""

    epochs: Positive = 10
    """Passes over the data; a fraction stops inside the last one."""
    batch_size: PositiveInt = 256
    """Examples per micro-batch and process."""
    accumulate: PositiveInt = 1
    """Micro-batches per step and process."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    label_smoothing: ShareBelowOne = 0.0
    clip_norm: Positive | None = None
    """Largest norm of all gradients together."""
    amp: Literal["bf16", "fp16"] | None = None
    """bf16 or fp16 autocast, where the device has it."""
    channels_last: bool = False
    num_workers: NumProcesses = 0
    seed: Seed = 0
    checkpoint_every: PositiveInt = 200
    """Steps between checkpoints; one more is written at the end, on Ctrl-C and on SIGTERM."""
    log_every: PositiveInt = 10

    def __post_init__(self) -> None:
        check_options(self, TrainingError)


def check_device(config: TrainConfig, device: torch.device) -> None:
    """Refuse what a device cannot do."""
    if config.amp == "fp16" and device.type == "cpu":
        raise TrainingError("amp 'fp16' needs a GPU, but the model is on the CPU; use 'bf16' there")
