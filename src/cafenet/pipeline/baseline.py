"""The Uniform baseline of `cafenet.search`: one factor on all channels, trained as the slim model is.

A trained model is cut to its most important channels and fine-tuned like the slim model. A model that came untrained
is cut and trained for as many epochs as the supernet and the slim model had together. If the slim model starts from
fresh weights, Uniform does, too.
"""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from cafenet.errors import TrainingError
from cafenet.modules.digests import digest_of_model
from cafenet.pipeline.job import Job
from cafenet.pipeline.lengths import Start
from cafenet.pipeline.stages import place_for
from cafenet.scoring.examples import hold_examples
from cafenet.scoring.recalibration import recalibrate_model
from cafenet.searching.budget import COUNTED, Budget, Cap, CostName
from cafenet.searching.feasible import Feasible
from cafenet.searching.result import FoundWidths
from cafenet.searching.uniform_widths import uniform_widths
from cafenet.space.importance import sort_by_importance
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.build import SupernetConfig, build_bins, divisor_of
from cafenet.supernet.plain_training import initialised, train_model
from cafenet.training.config import TrainConfig
from cafenet.training.distillation import DistillConfig

_STANDS_FOR: dict[CostName, CostName] = {"latency_ms": "flops", "file_bytes": "params"}
"""Counted costs in place of those that need measurements."""


@dataclass(frozen=True, eq=False)
class Baseline:
    """Everything that the Uniform model of a search depends on."""

    model: nn.Module
    """The original model; it is not changed."""
    example_inputs: Any
    """Inputs that the model was traced with."""
    space: WidthSpace
    """The width space of the model."""
    job: Job
    """The data and options of the search."""
    final: TrainConfig
    """Options of the slim model's training."""
    start: Start
    """Weights that the slim model's training starts from."""
    is_trained: bool
    """True if the model came trained."""
    distill: DistillConfig | None = None
    """Options of the distillation from the original model, or None."""

    @property
    def training(self) -> TrainConfig:
        """Options of Uniform's training."""
        if self.is_trained or self.start == "scratch":
            return self.final
        return replace(self.final, epochs=self.job.training.epochs + self.final.epochs)

    @property
    def words(self) -> str:
        """Description of Uniform's training, as a part of a sentence."""
        if self.start == "scratch":
            return "with the same training from fresh weights"
        if self.is_trained:
            return "with the same fine-tuning"
        return f"trained for the {self.training.epochs:g} epochs of both trainings"

    def trained(self, budget: Budget, found: FoundWidths, place: Path) -> nn.Module:
        """Cut the model to one factor and train it. A second call continues where the first one stopped.

        Args:
            budget: The budget of the search. Uniform has at most the found network's FLOPs where latency is capped.
            found: The widths that the search found.
            place: Directory of the model; a training of another one gets a directory beside it.

        Returns:
            The trained Uniform model.
        """
        begun = self._begun(budget, found)
        begins_with = {"weights": digest_of_model(begun), "epochs": self.training.epochs}
        begins_with |= described_teacher(self.model, self.distill)
        return train_model(
            begun,
            self.example_inputs,
            self.job.train_data,
            self.training,
            loss=self.job.loss,
            teacher=None if self.distill is None else self.model,
            distill=self.distill,
            directory=place_for(place.parent, place.name, begins_with),
            quiet=self.job.quiet,
            title="Uniform for comparison",
        )

    def _begun(self, budget: Budget, found: FoundWidths) -> nn.Module:
        """Return the Uniform model before its training."""
        space, options = self.space, self.job.supernet
        within = _of_counts(budget, found)
        if self.start == "scratch":
            fresh = initialised(self.model, self.final.seed)
            return uniform_cut(space, fresh, within, options, by_importance=False)
        slim = uniform_cut(space, self.model, within, options, by_importance=self.is_trained)
        if self.is_trained:
            size, device = self.job.scoring.calibration_size, next(slim.parameters()).device
            recalibrate_model(
                slim, hold_examples(self.job.train_data, "training data", num_examples=size, device=device)
            )
        return slim


def uniform_cut(
    space: WidthSpace, model: nn.Module, budget: Budget, options: SupernetConfig, *, by_importance: bool
) -> nn.Module:
    """Cut all layers of a model by one factor, to the widest that keep the budget.

    Args:
        space: The width space of the model.
        model: A model with the shapes of the traced one; it is not changed.
        budget: The budget, of FLOPs and parameters.
        options: Options of the supernet, for smallest widths and divisors.
        by_importance: Whether the most important channels of each group are kept, or the first ones.

    Returns:
        The slim model, not trained further.
    """
    within = Feasible(build_bins(space, options), {"flops": space.flops, "params": space.params}, budget)
    widths = uniform_widths(space, within, min_width=options.min_width, divisor=divisor_of(options)).tolist()
    return space.extract(widths, model=sort_by_importance(space, model) if by_importance else model)


def described_teacher(model: nn.Module, distill: DistillConfig | None) -> dict[str, Any]:
    """Describe the distillation of a training, so that one with another teacher is not taken for it.

    Args:
        model: The original model, which is the teacher.
        distill: Options of the distillation, or None.

    Returns:
        Plain values; none if there is no distillation.
    """
    return {} if distill is None else {"teacher": digest_of_model(model), "distill": asdict(distill)}


def wants_baseline(asked: bool | None, final: TrainConfig | None) -> bool:
    """Return whether a Uniform baseline is trained.

    Args:
        asked: The user's choice; None trains it if the slim model is trained.
        final: Options of the slim model's training, or None if it is not trained.

    Returns:
        True if it is trained.

    Raises:
        TrainingError: If a baseline is asked for where the slim model has no training that it could share.
    """
    if asked and final is None:
        raise TrainingError(
            "baseline=True trains Uniform as the slim model is trained, but that is not trained; leave finetune=False "
            "(or finetune_epochs=0) out"
        )
    return final is not None if asked is None else asked


def _of_counts(budget: Budget, found: FoundWidths) -> Budget:
    """Replace caps that need measurements: on latency by the FLOPs of the network found, on its file by the params."""
    limits = {cap.cost: cap.limit for cap in budget.caps if cap.cost in COUNTED}
    for measured, counted in _STANDS_FOR.items():
        if any(cap.cost == measured for cap in budget.caps):
            limits[counted] = min(found.costs[counted], limits.get(counted, math.inf))
    return Budget(budget.text, tuple(Cap(cost, limit) for cost, limit in limits.items()))
