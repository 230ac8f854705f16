"""Knowledge distillation: a loss that compares outputs with a teacher's, in addition to the labels."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cafenet.common.options import Positive, PositiveShare, check_options
from cafenet.errors import TrainingError
from cafenet.modules.batches import Batch, LossFunction
from cafenet.modules.copying import copy_of
from cafenet.modules.inputs import call_arguments
from cafenet.modules.outputs import logits_of
from cafenet.modules.unwrapping import unwrap
from cafenet.training.losses import OWN_LOSS, loss_by_name


@dataclass(frozen=True)
class DistillConfig:
    """Options of knowledge distillation, in which a network learns a teacher's outputs in addition to the labels.

    Examples:
        >>> from cafenet.training.distillation import DistillConfig
        >>> DistillConfig(weight=0.7)
        DistillConfig(weight=0.7, temperature=4.0)
    """

    weight: PositiveShare = 0.5
    """Share of the teacher's part in the loss."""
    temperature: Positive = 4.0
    """Number by which both outputs are divided before they are compared."""

    def __post_init__(self) -> None:
        check_options(self, TrainingError)


def distillation_of(asked: DistillConfig | bool) -> DistillConfig | None:
    """Return the options of a distillation that was asked for in short.

    Args:
        asked: Options, or True for the usual ones.

    Returns:
        The options, or None if there is no distillation.

    Examples:
        >>> from cafenet.training.distillation import distillation_of
        >>> distillation_of(True)
        DistillConfig(weight=0.5, temperature=4.0)
    """
    if isinstance(asked, bool):
        return DistillConfig() if asked else None
    return asked


class Teacher:
    """A copy of a network in eval mode, which computes its outputs for a batch.

    Args:
        model: The network to copy.
        device: Device of the copy.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.model = copy_of(unwrap(model)).to(device).eval()

    @torch.no_grad()
    def teach(self, batch: Batch) -> Batch:
        """Adds the teacher's outputs to the targets of a batch.

        Args:
            batch: A batch of inputs and targets.

        Returns:
            The batch with targets (teacher's outputs, target), as `Distillation` takes them.
        """
        inputs, target = batch
        args, kwargs = call_arguments(inputs)
        return inputs, (logits_of(self.model(*args, **kwargs)), target)


class Distillation:
    """The loss (1 - weight) x the loss of the labels + weight x the distance of the outputs from the teacher's.

    For class scores (`cross_entropy` and losses of the user's own) the distance is the KL divergence over the second
    dimension at the temperature, times the square of the temperature. For attributes (`bce`) it is the binary cross
    entropy with the teacher's probabilities, with the same factor. With the model's own loss (`model`) it is the KL
    divergence over the last dimension of the `logits`. Targets are pairs (teacher's outputs, target).

    Args:
        loss: Loss of the labels: a name for `loss_by_name`, or a function loss(output, target).
        config: Options of the distillation.
        label_smoothing: Label smoothing of a loss that is given by name.
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
        scores = logits_of(output)
        if not isinstance(scores, Tensor):
            raise TrainingError(f"distillation needs a model with one output tensor, but got {type(output).__name__}")
        if not isinstance(taught, Tensor) or taught.shape != scores.shape:
            found = list(taught.shape) if isinstance(taught, Tensor) else type(taught).__name__
            raise TrainingError(f"a teacher's outputs must have the shape {list(scores.shape)}, but are {found}")
        own = self._loss(output, labels)
        return (1 - self._config.weight) * own + self._config.weight * self._divergence(scores, taught)

    def _divergence(self, output: Tensor, taught: Tensor) -> Tensor:
        heat = self._config.temperature
        if self._name == "bce":
            return functional.binary_cross_entropy_with_logits(output / heat, torch.sigmoid(taught / heat)) * heat**2
        dim = -1 if self._name == OWN_LOSS else 1
        if output.ndim < 2 or output.shape[dim] < 2:
            raise TrainingError(
                f"distillation compares scores of two classes or more, but outputs are {list(output.shape)}; use the "
                "loss 'bce' for yes or no"
            )
        own, other = functional.log_softmax(output / heat, dim=dim), functional.log_softmax(taught / heat, dim=dim)
        return functional.kl_div(own, other, reduction="none", log_target=True).sum(dim).mean() * heat**2
