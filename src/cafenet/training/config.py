"""The options of a supernet's training, and what must hold for them."""

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
    """How a supernet is trained."""

    epochs: Positive = 10
    """Passes over the data; a fraction stops inside the last one."""
    batch_size: PositiveInt = 256
    """Examples per micro-batch and process."""
    accumulate: PositiveInt = 1
    """Micro-batches per step and process."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    label_smoothing: ShareBelowOne = 0.0
    random_share: Share = 0.0
    """The paper's lambda: share of the first steps that train a random candidate instead of the best."""
    sandwich: Count = 0
    """0 trains one width a step; n > 0 the widest, the smallest and n sampled ones (the sandwich rule)."""
    flops_band: Annotated[tuple[PositiveShare, PositiveShare], Rising()] | Literal["budgets"] | None = "budgets"
    """Sample widths near a share of the model's FLOPs drawn from this band, e.g. [0.3, 0.7]. `budgets` is a band about
    the budgets that will be searched, where these are known; None is over all bins, as in the paper."""
    spread: Positive = 0.3
    """In a band: how far the groups' shares lie apart (standard deviation of their logarithms)."""
    full_share: ShareBelowOne | None = None
    """Share of the epochs that train the full network first; its most important channels then go in front, and the
    supernet goes on from there. None is 0.3 in a search or a run and 0, as in the paper, in `train_supernet` alone."""
    distill: DistillConfig | None = None
    """Let all widths learn the outputs of the full network that the supernet begins with: the one given, if it is
    trained, or the one trained first (`full_share`); in a later stage, the network that the one before found."""
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
