"""Training a supernet: min-min (paper, appendix a1), after the full network where asked; resumable and distributed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from cafenet.common.directories import usable_directory
from cafenet.common.files import copy_directory
from cafenet.common.options import Count, check_arguments
from cafenet.common.plain_values import plain_numbers
from cafenet.common.run_log import Journal
from cafenet.errors import TrainingError
from cafenet.modules.batches import LossFunction
from cafenet.space.bins import uniform_bins
from cafenet.space.importance import importance_order, put_in_order
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.sharing import LocallyFree
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.trainer import Trainer, named_loss
from cafenet.training.batch_feed import Feed
from cafenet.training.config import TrainConfig, check_device
from cafenet.training.loop import TrainResult
from cafenet.training.optimizers import shortened
from cafenet.training.process_group import processes

FULL_NETWORK = "full"
"""Where in a supernet's directory the full network is kept that it began with."""

__all__ = ["FULL_NETWORK", "SamplingConfig", "TrainConfig", "TrainResult", "check_training", "train_supernet"]


def train_supernet(
    supernet: Supernet,
    data: Dataset[Any] | DataLoader[Any],
    config: TrainConfig | None = None,
    *,
    sampling: SamplingConfig | None = None,
    loss: str | LossFunction = "cross_entropy",
    teacher: nn.Module | None = None,
    directory: str | Path | None = None,
    quiet: bool = False,
    tensorboard: bool = False,
    max_steps: int | None = None,
    name: str = "supernet",
    title: str | None = None,
) -> TrainResult:
    """Train the supernet in place; with a directory, a second call continues where the first one stopped.

    sampling: which widths are trained, and what they learn from; `TrainConfig` is what any training has.
    teacher: whose outputs are learned with `sampling.distill`, by default the full network that the supernet
    begins with.
    name: the checkpoint's file name without `.pt`; title: what progress is shown as, by default the same.
    max_steps: stop (with a checkpoint) after that many steps in all, as an interruption would.
    """
    check_arguments(
        TrainingError,
        config=(config, TrainConfig | None),
        sampling=(sampling, SamplingConfig | None),
        max_steps=(max_steps, Count | None),
    )
    config = TrainConfig() if config is None else plain_numbers(config)
    sampling = SamplingConfig() if sampling is None else plain_numbers(sampling)
    check_device(config, supernet.device)
    place = None if directory is None else usable_directory(directory, TrainingError)
    options: dict[str, Any] = {"loss": loss, "quiet": quiet, "tensorboard": tensorboard}
    begun = TrainResult(0, float("nan"), finished=True)
    if sampling.full_share and supernet.binned.bins.search_space_size > 1:
        config, begun = _begin_with_full_network(
            supernet, data, config, sampling.full_share, place, max_steps, title or name, options
        )
        if not begun.finished or begun.steps == max_steps:
            return replace(begun, finished=False)
    if sampling.distill is None and teacher is not None:
        raise TrainingError("a teacher is learned from with SamplingConfig(distill=...), but that is None")
    team = processes()
    trainer = Trainer(supernet, data, config, sampling, loss, place, team, name, teacher)
    journal = Journal(
        trainer.directory if team.is_first else None,
        trainer.total_steps,
        title=title or name,
        quiet=quiet or not team.is_first,
        tensorboard=tensorboard and team.is_first,
    )
    result = trainer.run(journal, None if max_steps is None else max_steps - begun.steps)
    return replace(result, steps=begun.steps + result.steps)


def check_training(
    config: TrainConfig,
    data: Dataset[Any] | DataLoader[Any],
    device: torch.device,
    loss: str | LossFunction = "cross_entropy",
) -> None:
    """What a training would refuse before its first step: options, the optimiser, data that do not fill a step."""
    check_device(config, device)
    named_loss(loss, config)
    Feed(data, batch_size=config.batch_size, accumulate=config.accumulate)


def _begin_with_full_network(
    supernet: Supernet,
    data: Dataset[Any] | DataLoader[Any],
    config: TrainConfig,
    share: float,
    directory: Path | None,
    max_steps: int | None,
    title: str,
    options: dict[str, Any],
) -> tuple[TrainConfig, TrainResult]:
    """Train the full network for its share of the epochs and put its most important channels in front.

    Returns how the supernet goes on from there, and how far the full network has come.
    """
    space = supernet.space
    whole = of_one_width(supernet.model, space)
    begun = train_supernet(
        whole,
        data,
        part_of(config, share),
        directory=None if directory is None else directory / FULL_NETWORK,
        max_steps=max_steps,
        name="model",
        title=f"{title}, full network first",
        **options,
    )
    order = importance_order(space, whole.model)
    put_in_order(space, whole.model, order, supernet.model)
    supernet.order = supernet.first_order[order]
    return part_of(config, 1 - share), begun


def share_full_network(source: Path, target: Path) -> None:
    """Take the full network that one supernet began with for another that begins with the same, if it has none yet."""
    source, target = source / FULL_NETWORK, target / FULL_NETWORK
    if processes().is_first and source.exists() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        copy_directory(source, target)


def of_one_width(model: nn.Module, space: WidthSpace) -> Supernet:
    """A supernet whose only width is the full one: training it is plain training."""
    return Supernet(model, space, uniform_bins(space, 1), LocallyFree(0))


def part_of(config: TrainConfig, share: float) -> TrainConfig:
    """A training of a share of the epochs, with its schedule: a half of 30 with a warm-up of 2 is 15 with one of 1."""
    return replace(config, epochs=share * config.epochs, schedule=shortened(config.schedule, config.epochs, share))
