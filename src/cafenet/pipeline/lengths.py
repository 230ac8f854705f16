"""Lengths and rates that the user did not choose: the trainings and the number of widths of a search.

Lengths that the user gives always hold. Smallest example: a trained model, `epochs=5` and nothing else gives a supernet
of 5 epochs at a rate of 0.05, and 15 epochs at that rate for the slim model. A fresh model has as many epochs for each.
Small data have small batches, and as many epochs as some hundred steps need: a fresh model and 400 examples have
batches of 32 and 34 epochs of the supernet with the normal effort.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from torch import nn

from cafenet.common.plain_values import plain_numbers
from cafenet.errors import TrainingError
from cafenet.modules.batch_norm import has_statistics
from cafenet.pipeline.options import SearchOptions
from cafenet.searching.algorithms.base import Algorithm
from cafenet.searching.algorithms.trend import Trend
from cafenet.supernet.build import SupernetConfig
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.train import part_of
from cafenet.training.config import TrainConfig
from cafenet.training.optimizers import OptimizerConfig

Effort: TypeAlias = Literal["quick", "normal", "thorough"]
"""Amount of work that a search does if no lengths are given."""

Start: TypeAlias = Literal["supernet", "scratch"]
"""Weights that the slim model's training starts from."""

_LENGTHS: dict[str, tuple[float, int]] = {"quick": (3, 100), "normal": (10, 300), "thorough": (40, 600)}
"""Epochs of the supernet of a fresh model, and number of widths."""
_FEWEST_STEPS = {"quick": 100, "normal": 400, "thorough": 1600}
"""Steps that the supernet of a fresh model has at least, however small the data are."""
_TRAINED_SHARE = 0.5
"""Length of a trained model's supernet, as a share of a fresh one's. The slim model gets what this saves: with as many
epochs in all, 5 and 15 ended higher than 10 and 10 (docs/lengths.md)."""
_STEPS_PER_EPOCH, _BATCH_SIZES = 50, (256, 128, 64, 32)
"""Steps that an epoch should have, and batch sizes of which the largest that gives so many is taken, else the last."""
_SLIM_SHARE, _TRAINED_SLIM_SHARE = 1.0, 3.0
"""Epochs of the slim model, as a share of the supernet's, for a fresh model and for a trained one."""
_LAYER_NORMS = ("LayerNorm", "RMSNorm", "LayerNorm2d")
"""Endings of the names of classes that normalise the features of each token by themselves."""
_GENTLE = 0.5
"""Rate of a supernet that begins with a trained model, as a share of the usual one."""
_GENTLER = 0.4
"""Rate of a slim transformer that goes on from such a supernet, as a share of the supernet's. If SGD trains a network
with batch norm, the supernet's own rate reached more, for the slim model and for Uniform alike."""


@dataclass(frozen=True)
class Given:
    """The user's choices about the trainings; None stands for a choice that was not made."""

    epochs: float | None
    """Epochs of the supernet."""
    finetune_epochs: float | None
    """Epochs of the slim model; 0 trains it no further."""
    train: TrainConfig | None
    """Options of the supernet's training."""
    finetune: TrainConfig | bool | None
    """Options of the slim model's training; False trains it no further."""
    effort: Effort
    """Lengths of what is not given."""
    start: Start
    """Weights that the slim model's training starts from."""
    seed: int
    """Seed of the search."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Optimiser of a training from fresh weights that is not given."""
    num_examples: int | None = None
    """Number of training examples; None if it is not known."""
    batch_size: int | None = None
    """Batch size of the user's loader; None if the data are no loader."""

    def check(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            TrainingError: If short and long forms are given together, or a training has a seed of its own.
        """
        is_short = (self.epochs, self.finetune_epochs) != (None, None)
        if is_short and (self.train is not None or self.finetune not in (None, False)):
            raise TrainingError(
                "epochs and finetune_epochs must not be given together with train or finetune; write "
                "train=TrainConfig(epochs=...) and finetune=TrainConfig(epochs=...)"
            )
        if self.finetune is False and self.finetune_epochs:
            raise TrainingError(f"finetune=False contradicts finetune_epochs={self.finetune_epochs}; leave one out")
        for name, config in (("train", self.train), ("finetune", self.finetune)):
            if isinstance(config, TrainConfig) and config.seed not in (0, self.seed):
                raise TrainingError(f"{name}.seed must be left out, since seed decides, but is {config.seed}")

    def trainings(self, is_trained: bool) -> tuple[TrainConfig, TrainConfig | None]:
        """Return the options of the supernet's training and of the slim model's, both with the seed of the search.

        Args:
            is_trained: True if the model came trained.

        Returns:
            The two trainings; the second is None if the slim model is not trained.
        """
        supernet = replace(plain_numbers(self.train) or self._default(is_trained), seed=self.seed)
        slim = self._slim(supernet, is_trained)
        return supernet, None if slim is None else replace(slim, seed=self.seed)

    def _default(self, is_trained: bool) -> TrainConfig:
        """Return the supernet's training if none is given."""
        batch_size = self.batch_size or _batch_size(self.num_examples)
        epochs = self._epochs(batch_size, is_short=self._goes_on(is_trained))
        config = TrainConfig(epochs=epochs, optimizer=self.optimizer)
        if self.batch_size is None:  # a loader has its own
            config = replace(config, batch_size=batch_size)
        return _slower(config, _GENTLE if is_trained else 1.0)

    def _goes_on(self, is_trained: bool) -> bool:
        """Return whether the slim model continues from weights that began with those of a trained model."""
        return is_trained and self.start == "supernet"

    def _epochs(self, batch_size: int, is_short: bool) -> float:
        """Return the supernet's epochs: as given, or as the effort says, but more where the data are small."""
        if self.epochs is not None:
            epochs: float = plain_numbers(self.epochs)
            return epochs
        usual, _ = _LENGTHS[self.effort]
        steps_per_epoch = (self.num_examples or 0) // batch_size
        if steps_per_epoch:
            usual = max(usual, math.ceil(_FEWEST_STEPS[self.effort] / steps_per_epoch))
        return usual * (_TRAINED_SHARE if is_short else 1)

    def _slim(self, supernet: TrainConfig, is_trained: bool) -> TrainConfig | None:
        """Return the slim model's training: as given, or one of the supernet's kind."""
        if self.finetune is False or self.finetune_epochs == 0:
            return None
        if isinstance(self.finetune, TrainConfig):
            config: TrainConfig = plain_numbers(self.finetune)
            return config
        if self.start == "scratch" and self.train is None:  # fresh weights need no gentle rate
            supernet = replace(supernet, optimizer=self.optimizer)
        goes_on = self._goes_on(is_trained)
        share = _TRAINED_SLIM_SHARE if goes_on else _SLIM_SHARE
        if self.finetune_epochs is not None:
            share = plain_numbers(self.finetune_epochs) / supernet.epochs
        factor = _GENTLER if goes_on and supernet.optimizer.name == "AdamW" else 1.0
        return _slower(part_of(supernet, share), factor)


def optimizer_for(model: nn.Module) -> OptimizerConfig:
    """Return the optimiser of a training that nobody chose: that of convolutional networks, or that of transformers.

    SGD at a rate of 0.1 suits networks with batch norm; it destroys a trained transformer.

    Args:
        model: The model.

    Returns:
        AdamW at a rate of 0.0005 if the model normalises by layer norm or RMS norm and never by batch norm, else SGD.
    """
    norms = any(type(module).__name__.endswith(_LAYER_NORMS) for module in model.modules())
    if norms and not has_statistics(model):
        return OptimizerConfig("AdamW", lr=5e-4, weight_decay=0.01)
    return OptimizerConfig()


def _batch_size(num_examples: int | None) -> int:
    """Return a batch size that gives small data enough steps: 64 for 4,000 examples, 256 from 12,800 on."""
    fitting = [size for size in _BATCH_SIZES if num_examples is None or num_examples >= _STEPS_PER_EPOCH * size]
    return min(max(fitting, default=_BATCH_SIZES[-1]), num_examples or _BATCH_SIZES[0])


def _slower(config: TrainConfig, factor: float) -> TrainConfig:
    """Return a training with a lower rate."""
    if factor == 1.0:
        return config
    return replace(config, optimizer=replace(config.optimizer, lr=round(factor * config.optimizer.lr, 10)))


def supernet_of(options: SearchOptions, is_trained: bool) -> SupernetConfig:
    """Return the options of the supernet: those given, or channels sorted by importance if the model is trained.

    Args:
        options: The options of the search.
        is_trained: True if the model came trained.

    Returns:
        The options of the supernet.
    """
    return options.supernet or SupernetConfig(sort_by_importance=is_trained)


def sampling_of(options: SearchOptions, is_trained: bool) -> SamplingConfig:
    """Return the options of sampling: those given, or no training of the full network if the model is trained.

    Args:
        options: The options of the search.
        is_trained: True if the model came trained.

    Returns:
        The options of sampling.
    """
    return options.sampling or (SamplingConfig(full_share=0.0) if is_trained else SamplingConfig())


def algorithm_of(options: SearchOptions, effort: Effort) -> Algorithm:
    """Return the algorithm: the one given, or a trend of as many widths as the effort says.

    Args:
        options: The options of the search.
        effort: The amount of work that the search does.

    Returns:
        The algorithm.
    """
    return options.algorithm or Trend(samples=_LENGTHS[effort][1])
