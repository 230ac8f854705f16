"""Training a slim model, or any model, by itself: from scratch or from weights that it has, resumable.

It is the supernet's own loop on a supernet of one width, which makes plain training of it.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, default_collate

from cafenet.calling import call_arguments, copy_of, unwrap
from cafenet.errors import TrainingError
from cafenet.losses import check_target, loss_by_name
from cafenet.supernet import LossFunction
from cafenet.trace import trace
from cafenet.train import TrainConfig, of_one_width, train_supernet


@dataclass(frozen=True)
class DistillConfig:
    """Knowledge distillation: learn a teacher's outputs besides the labels."""

    weight: float = 0.5
    """Share of the teacher's part in the loss."""
    temperature: float = 4.0
    """Both outputs are divided by it before they are compared."""

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise TrainingError(f"`0 < weight <= 1` must hold for distillation, but got {self.weight}")
        if not self.temperature > 0:
            raise TrainingError(f"temperature must be positive, but got {self.temperature}")


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
    config = TrainConfig() if config is None else config
    whole = of_one_width(model, trace(model, example_inputs, verify=False))
    if teacher is not None:
        data = with_inputs(data, config.batch_size)
        loss = Distillation(teacher, loss, distill or DistillConfig(), config.label_smoothing)
        config = replace(config, label_smoothing=0.0)
    train_supernet(whole, data, config, loss=loss, directory=directory, quiet=quiet, name="model", title=title)
    return whole.model


def initialised(model: nn.Module, seed: int) -> nn.Module:
    """A copy with fresh weights: every layer that knows how (`reset_parameters`) draws its own anew."""
    copy = copy_of(unwrap(model))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in copy.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
    return copy


class Distillation:
    """(1 - weight) x the loss of the labels + weight x how far the outputs are from the teacher's.

    For class scores that is the KL divergence at the temperature, times its square; for attributes (`bce`) the binary
    cross entropy with the teacher's probabilities, likewise. Targets are pairs (inputs, target), as `with_inputs` makes
    them.
    """

    def __init__(
        self, teacher: nn.Module, loss: str | LossFunction, config: DistillConfig, label_smoothing: float = 0.0
    ) -> None:
        self._teacher = copy_of(unwrap(teacher)).eval()
        self._name = loss if isinstance(loss, str) else None
        self._loss = loss_by_name(loss, label_smoothing=label_smoothing) if isinstance(loss, str) else loss
        self._config = config
        smoothing = f", label smoothing {label_smoothing}" if label_smoothing else ""
        self.__name__ = f"distillation of {self._name or 'a function'}, {config}{smoothing}"

    def __call__(self, output: Tensor, target: tuple[Any, Any]) -> Tensor:
        inputs, labels = target
        if self._name is not None:
            check_target(self._name, output, labels)
        args, kwargs = call_arguments(inputs)
        with torch.no_grad():
            taught = self._teacher(*args, **kwargs)
        if not isinstance(taught, Tensor) or taught.shape != output.shape:
            found = list(taught.shape) if isinstance(taught, Tensor) else type(taught).__name__
            raise TrainingError(f"a teacher's outputs must have the shape {list(output.shape)}, but are {found}")
        own = self._loss(output, labels)
        return (1 - self._config.weight) * own + self._config.weight * self._divergence(output, taught)

    def _divergence(self, output: Tensor, taught: Tensor) -> Tensor:
        heat = self._config.temperature
        if self._name == "bce":
            return functional.binary_cross_entropy_with_logits(output / heat, torch.sigmoid(taught / heat)) * heat**2
        own, other = functional.log_softmax(output / heat, dim=1), functional.log_softmax(taught / heat, dim=1)
        return functional.kl_div(own, other, reduction="batchmean", log_target=True) * heat**2


def with_inputs(data: Dataset[Any] | DataLoader[Any], batch_size: int) -> DataLoader[Any]:
    """The same batches with targets (inputs, target), so that a loss can see what a teacher must see."""
    if isinstance(data, DataLoader):
        return DataLoader(
            data.dataset,
            batch_size=data.batch_size,
            collate_fn=_WithInputs(data.collate_fn),
            num_workers=data.num_workers,
        )
    return DataLoader(data, batch_size=batch_size, collate_fn=_WithInputs(default_collate))


class _WithInputs:
    def __init__(self, collate: Any) -> None:
        self._collate = collate

    def __call__(self, examples: list[Any]) -> tuple[Any, tuple[Any, Any]]:
        inputs, target = self._collate(examples)
        return inputs, (inputs, target)
