"""Knowledge distillation: a loss that compares outputs with a teacher's besides the labels."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cafenet.common.options import Positive, PositiveShare, check_options
from cafenet.errors import TrainingError
from cafenet.modules.batches import Batch, LossFunction
from cafenet.modules.calling import call_arguments, copy_of, unwrap
from cafenet.training.losses import loss_by_name


@dataclass(frozen=True)
class DistillConfig:
    """Knowledge distillation: learn a teacher's outputs besides the labels."""

    weight: PositiveShare = 0.5
    """Share of the teacher's part in the loss."""
    temperature: Positive = 4.0
    """Both outputs are divided by it before they are compared."""

    def __post_init__(self) -> None:
        check_options(self, TrainingError)


class Teacher:
    """A copy of a network in eval mode, which says what it makes of a batch's inputs."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.model = copy_of(unwrap(model)).to(device).eval()

    @torch.no_grad()
    def teach(self, batch: Batch) -> Batch:
        """The batch with targets (what the teacher says, target), as `Distillation` takes them."""
        inputs, target = batch
        args, kwargs = call_arguments(inputs)
        return inputs, (self.model(*args, **kwargs), target)


class Distillation:
    """(1 - weight) x the loss of the labels + weight x how far the outputs are from the teacher's.

    For class scores (`cross_entropy` and losses of the user's own) that is the KL divergence of the second dimension at
    the temperature, times its square; for attributes (`bce`) the binary cross entropy with the teacher's probabilities,
    likewise. Targets are pairs (the teacher's outputs, target).
    """

    def __init__(self, loss: str | LossFunction, config: DistillConfig, label_smoothing: float = 0.0) -> None:
        self._name = loss if isinstance(loss, str) else None
        self._loss = loss_by_name(loss, label_smoothing=label_smoothing) if isinstance(loss, str) else loss
        self._config = config
        smoothing = f", label smoothing {label_smoothing}" if label_smoothing else ""
        name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
        self.__name__ = f"distillation of {name}, {config}{smoothing}"

    def __call__(self, output: Any, target: tuple[Any, Any]) -> Tensor:
        taught, labels = target
        if not isinstance(output, Tensor):
            raise TrainingError(f"distillation needs a model with one output tensor, but got {type(output).__name__}")
        if not isinstance(taught, Tensor) or taught.shape != output.shape:
            found = list(taught.shape) if isinstance(taught, Tensor) else type(taught).__name__
            raise TrainingError(f"a teacher's outputs must have the shape {list(output.shape)}, but are {found}")
        own = self._loss(output, labels)
        return (1 - self._config.weight) * own + self._config.weight * self._divergence(output, taught)

    def _divergence(self, output: Tensor, taught: Tensor) -> Tensor:
        heat = self._config.temperature
        if self._name == "bce":
            return functional.binary_cross_entropy_with_logits(output / heat, torch.sigmoid(taught / heat)) * heat**2
        if output.ndim < 2 or output.shape[1] < 2:
            raise TrainingError(
                f"distillation compares scores of two classes or more, but outputs are {list(output.shape)}; use the "
                "loss 'bce' for yes or no"
            )
        own, other = functional.log_softmax(output / heat, dim=1), functional.log_softmax(taught / heat, dim=1)
        return functional.kl_div(own, other, reduction="none", log_target=True).sum(1).mean() * heat**2
