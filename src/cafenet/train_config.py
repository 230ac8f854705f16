"""The options of a supernet's training, and what must hold for them."""

from dataclasses import dataclass, field
from typing import Literal

import torch

from cafenet.distill import DistillConfig
from cafenet.errors import TrainingError
from cafenet.optim import OptimizerConfig, ScheduleConfig, check_schedule


@dataclass(frozen=True)
class TrainConfig:
    """How a supernet is trained."""

    epochs: float = 10
    """Passes over the data; a fraction stops inside the last one."""
    batch_size: int = 256
    """Examples per micro-batch and process."""
    accumulate: int = 1
    """Micro-batches per step and process."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    label_smoothing: float = 0.0
    random_share: float = 0.0
    """The paper's lambda: share of the first steps that train a random candidate instead of the best."""
    sandwich: int = 0
    """0 trains one width a step; n > 0 the widest, the smallest and n sampled ones (the sandwich rule)."""
    flops_band: tuple[float, float] | Literal["budgets"] | None = "budgets"
    """Sample widths near a share of the model's FLOPs drawn from this band, e.g. [0.3, 0.7]. `budgets` is a band about
    the budgets that will be searched, where these are known; None is over all bins, as in the paper."""
    spread: float = 0.3
    """In a band: how far the groups' shares lie apart (standard deviation of their logarithms)."""
    full_share: float | None = None
    """Share of the epochs that train the full network first; its most important channels then go in front, and the
    supernet goes on from there. None is 0.3 in a search or a run and 0, as in the paper, in `train_supernet` alone."""
    distill: DistillConfig | None = None
    """Let all widths learn the outputs of the full network that the supernet begins with: the one given, if it is
    trained, or the one trained first (`full_share`); in a later stage, the network that the one before found."""
    clip_norm: float | None = None
    """Largest norm of all gradients together."""
    amp: str | None = None
    """bf16 or fp16 autocast, where the device has it."""
    channels_last: bool = False
    num_workers: int = 0
    seed: int = 0
    checkpoint_every: int = 200
    """Steps between checkpoints; one more is written at the end, on Ctrl-C and on SIGTERM."""
    log_every: int = 10


def _is_band(band: object) -> bool:
    is_pair = isinstance(band, (tuple, list)) and len(band) == 2
    return is_pair and 0 < band[0] <= band[1] <= 1  # type: ignore[index]


def check_config(config: TrainConfig, device: torch.device) -> None:
    """All mistakes of a config in one message, before any work."""
    problems = []
    for name in ("epochs", "batch_size", "accumulate", "checkpoint_every", "log_every"):
        if not getattr(config, name) > 0:
            problems.append(f"{name} must be positive, but is {getattr(config, name)}")
    if not 0.0 <= config.random_share <= 1.0:
        problems.append(f"random_share (lambda) must lie in [0, 1], but is {config.random_share}")
    if config.full_share is not None and not 0.0 <= config.full_share < 1.0:
        problems.append(f"full_share must be None or lie in [0, 1), but is {config.full_share}")
    if config.clip_norm is not None and not config.clip_norm > 0:
        problems.append(f"clip_norm must be positive or None, but is {config.clip_norm}")
    if not 0.0 <= config.label_smoothing < 1.0:
        problems.append(f"label_smoothing must lie in [0, 1), but is {config.label_smoothing}")
    if config.num_workers < 0:
        problems.append(f"num_workers must be 0 or more, but is {config.num_workers}")
    if config.seed < 0:
        problems.append(f"seed must be 0 or more, but is {config.seed}")
    if config.sandwich < 0:
        problems.append(f"sandwich must be 0 or more, but is {config.sandwich}")
    band = config.flops_band
    if not (band in ("budgets", None) or _is_band(band)):
        problems.append(f"flops_band must be [low, high] with 0 < low <= high <= 1, 'budgets' or None, but is {band!r}")
    if not config.spread > 0:
        problems.append(f"spread must be positive, but is {config.spread}")
    if config.amp not in (None, "bf16", "fp16"):
        problems.append(f"amp must be bf16 or fp16, but is {config.amp!r}")
    if config.amp == "fp16" and device.type == "cpu":
        problems.append("amp fp16 needs a GPU; use bf16 on a CPU")
    if problems:
        raise TrainingError("; ".join(problems))
    check_schedule(config.schedule)
