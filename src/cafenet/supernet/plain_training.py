"""Training of a slim model, or of any model, by itself: from scratch or from its present weights, resumable.

The training loop is that of a supernet, run on a supernet that has only the full width.
"""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from cafenet.common.options import check_arguments
from cafenet.errors import CafeNetWarning, TrainingError
from cafenet.modules.batches import LossFunction
from cafenet.modules.copying import copy_of
from cafenet.modules.unwrapping import unwrap
from cafenet.space.width_space import TracedSpace, WidthSpace
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.train import of_one_width, train_supernet
from cafenet.tracing.tracer import find_space
from cafenet.training.config import TrainConfig
from cafenet.training.distillation import DistillConfig


def train_model(
    model: nn.Module,
    example_inputs: Any,
    data: Dataset[Any] | DataLoader[Any],
    config: TrainConfig | None = None,
    *,
    loss: str | LossFunction = "cross_entropy",
    teacher: nn.Module | None = None,
    distill: DistillConfig | None = None,
    directory: str | Path | None = None,
    quiet: bool = False,
    title: str = "model",
    space: WidthSpace | None = None,
) -> nn.Module:
    """Train a copy of a model.

    With a directory, a second call continues where the first one stopped.

    Args:
        model: The model; it is not changed.
        example_inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments.
        data: A data set or a loader of pairs (inputs, target).
        config: Options of the training.
        loss: "cross_entropy", another loss by name, or a function of (output, target) that returns the mean loss.
        teacher: A trained model whose outputs the model learns, too (distillation).
        distill: Options of the distillation; only with a teacher.
        directory: Directory of the checkpoint and the log.
        quiet: If True, no progress is shown.
        title: Text in front of the progress.
        space: Width space of a model with the same shapes, if there is one; by default the model is traced.

    Returns:
        The trained copy. Its layers are in train or eval mode as those of the model are.

    Raises:
        TrainingError: If the options contradict each other, the data do not fit the model, or the loss becomes
            infinite.

    Example:
        >>> import cafenet, torch
        >>> data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.arange(16) % 2)
        >>> config = cafenet.TrainConfig(epochs=1, batch_size=8)
        >>> trained = cafenet.train_model(torch.nn.Linear(4, 2), torch.randn(2, 4), data, config, quiet=True)
        >>> type(trained).__name__
        'Linear'
    """
    check_arguments(
        TrainingError,
        config=(config, TrainConfig | None),
        distill=(distill, DistillConfig | None),
        quiet=(quiet, bool),
        space=(space, TracedSpace | None),
    )
    config = TrainConfig() if config is None else config
    space = find_space(model, example_inputs, verify=False) if space is None else space
    whole = of_one_width(model, space)
    if teacher is None and distill is not None:
        raise TrainingError(f"distillation needs a teacher, but there is none for {distill}")
    train_supernet(
        whole,
        data,
        config,
        sampling=SamplingConfig(distill=None if teacher is None else distill or DistillConfig()),
        loss=loss,
        teacher=teacher,
        directory=directory,
        quiet=quiet,
        name="model",
        title=title,
    )
    for trained, given in zip(whole.model.modules(), unwrap(model).modules(), strict=True):
        trained.training = given.training
    return whole.model


def initialised(model: nn.Module, seed: int) -> nn.Module:
    """Return a copy of a model with fresh weights: every layer that has `reset_parameters` draws its own anew.

    Parameters of other modules, such as class tokens, keep their values, and a warning names them. A model of
    transformers initialises itself, as its config says.

    Args:
        model: The model; it is not changed.
        seed: Seed of the new weights.

    Returns:
        The copy.
    """
    copy = copy_of(unwrap(model))
    kept = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, module in copy.named_modules():
            # nn.MultiheadAttention has a private `_reset_parameters`.
            reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
            if callable(reset):
                reset()
            else:
                kept += [f"{name}.{own}".lstrip(".") for own, _ in module.named_parameters(recurse=False)]
        own_start = getattr(copy, "_init_weights", None)
        if callable(own_start):
            with torch.no_grad():
                copy.apply(own_start)
            kept = []
    if kept:
        warnings.warn(
            f"fresh weights need layers with `reset_parameters`; these parameters keep their values: {', '.join(kept)}",
            CafeNetWarning,
            stacklevel=2,
        )
    return copy
