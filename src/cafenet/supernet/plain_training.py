"""Training a slim model, or any model, by itself: from scratch or from weights that it has, resumable.

It is the supernet's own loop on a supernet of one width, which makes plain training of it.
"""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from cafenet.common.options import check_arguments
from cafenet.errors import TrainingError
from cafenet.modules.batches import LossFunction
from cafenet.modules.calling import copy_of, unwrap
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.train import TrainConfig, of_one_width, train_supernet
from cafenet.tracing.tracer import find_space
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
) -> nn.Module:
    """A trained copy of the model; with a directory, a second call continues where the first one stopped."""
    check_arguments(
        TrainingError, config=(config, TrainConfig | None), distill=(distill, DistillConfig | None), quiet=(quiet, bool)
    )
    config = TrainConfig() if config is None else config
    whole = of_one_width(model, find_space(model, example_inputs, verify=False))
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
    return whole.model


def initialised(model: nn.Module, seed: int) -> nn.Module:
    """A copy with fresh weights: every layer that knows how (`reset_parameters`) draws its own anew.

    Parameters of other modules, such as class tokens, keep their values, and a warning names them.
    """
    copy = copy_of(unwrap(model))
    kept = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, module in copy.named_modules():
            reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)  # attention
            if callable(reset):
                reset()
            else:
                kept += [f"{name}.{own}".lstrip(".") for own, _ in module.named_parameters(recurse=False)]
    if kept:
        warnings.warn(
            f"fresh weights need layers with `reset_parameters`; these parameters keep their values: {', '.join(kept)}",
            stacklevel=2,
        )
    return copy
