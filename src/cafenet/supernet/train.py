"""Training of a supernet: min-min (paper, appendix a1), after the full network if asked; resumable and distributed."""

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
from cafenet.common.run_log import RunLog
from cafenet.common.run_places import FULL_NETWORK
from cafenet.errors import TrainingError
from cafenet.modules.batches import LossFunction
from cafenet.space.bins import uniform_bins
from cafenet.space.importance import importance_order, put_in_order
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.sharing import LocallyFree
from cafenet.supernet.supernet import Supernet
from cafenet.supernet.trainer import Trainer
from cafenet.training.batch_feed import Feed
from cafenet.training.config import TrainConfig, check_device
from cafenet.training.loop import TrainResult
from cafenet.training.losses import named_loss
from cafenet.training.optimizers import shortened
from cafenet.training.process_group import processes

__all__ = ["SamplingConfig", "TrainConfig", "TrainResult", "check_training", "train_supernet"]


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
    """Train a supernet in place.

    With a directory, a second call continues where the first one stopped.

    Args:
        supernet: The supernet; its weights are trained.
        data: A data set or a loader of pairs (inputs, target).
        config: Options of the training.
        sampling: Options of sampling: which widths are trained, and what they learn from.
        loss: "cross_entropy", another loss by name, or a function of (output, target) that returns the mean loss.
        teacher: Model whose outputs are learned with `sampling.distill`, by default the full network that the supernet
            begins with.
        directory: Directory of the checkpoint and the log.
        quiet: If True, no progress is shown.
        tensorboard: If True, a TensorBoard log is written to the directory.
        max_steps: Total number of steps after which training stops with a checkpoint, as an interruption would stop it.
        name: File name of the checkpoint without `.pt`.
        title: Text in front of the progress, by default the name.

    Returns:
        The number of steps, the last loss, and whether training has finished.

    Raises:
        TrainingError: If the options contradict each other, the data do not fit the model, or the loss becomes
            infinite.
        CheckpointError: If the checkpoint in the directory belongs to another training or cannot be read.

    Example:
        >>> import cafenet, torch
        >>> from cafenet.space.bins import uniform_bins
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
        >>> data = torch.utils.data.TensorDataset(torch.randn(16, 3, 8, 8), torch.arange(16) % 2)
        >>> space = cafenet.trace(model, torch.randn(2, 3, 8, 8))
        >>> supernet = cafenet.Supernet(model, space, uniform_bins(space, 8))
        >>> cafenet.train_supernet(supernet, data, cafenet.TrainConfig(epochs=1, batch_size=8), quiet=True).steps
        2
    """
    check_arguments(
        TrainingError,
        supernet=(supernet, Supernet),
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
    run_log = RunLog(
        trainer.directory if team.is_first else None,
        trainer.total_steps,
        title=title or name,
        quiet=quiet or not team.is_first,
        tensorboard=tensorboard and team.is_first,
    )
    result = trainer.run(run_log, None if max_steps is None else max_steps - begun.steps)
    return replace(result, steps=begun.steps + result.steps)


def check_training(
    config: TrainConfig,
    data: Dataset[Any] | DataLoader[Any],
    device: torch.device,
    loss: str | LossFunction = "cross_entropy",
) -> None:
    """Check what a training would refuse before its first step.

    Args:
        config: Options of the training.
        data: The training data.
        device: Device of the model.
        loss: The loss, by name or as a function.

    Raises:
        TrainingError: If the device cannot do what the options ask for, the loss is unknown, or the data do not fill a
            step.
    """
    check_device(config, device)
    named_loss(loss, config)
    Feed(
        data,
        batch_size=config.batch_size,
        accumulate=config.accumulate,
        examples_per_step=config.examples_per_step,
    )


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

    Returns:
        The options with which the supernet continues, and the progress of the full network.
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
    """Copy the full network that one supernet's training began with to another that begins with the same one.

    Nothing is copied if the source has no full network or the target already has one. Only the first of several
    processes copies.

    Args:
        source: Directory of the supernet that has the full network.
        target: Directory of the supernet that needs it.
    """
    source, target = source / FULL_NETWORK, target / FULL_NETWORK
    if processes().is_first and source.exists() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        copy_directory(source, target)


def of_one_width(model: nn.Module, space: WidthSpace) -> Supernet:
    """Return a supernet that has only the full width; training it is plain training.

    Args:
        model: The model; it is not changed.
        space: The width space of the model.

    Returns:
        The supernet.
    """
    return Supernet(model, space, uniform_bins(space, 1), LocallyFree(0))


def part_of(config: TrainConfig, share: float) -> TrainConfig:
    """Return the options of a training for a share of the epochs; a half of 30 epochs with a warm-up of 2 is 15 with 1.

    Args:
        config: Options of the whole training.
        share: Share of the epochs.

    Returns:
        The options, with the schedule shortened in proportion.
    """
    return replace(config, epochs=share * config.epochs, schedule=shortened(config.schedule, config.epochs, share))
