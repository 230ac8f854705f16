"""One training step of a supernet: the width vector that it trains, and its loss."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from cafenet.modules.batches import Batch, LossFunction
from cafenet.space.bins import IntArray
from cafenet.space.layout import Subnet

if TYPE_CHECKING:
    from cafenet.supernet.supernet import Supernet


@dataclass(frozen=True, eq=False)
class Pick:
    """The width vector that a step trains, with the candidate that stands for it (or all, if the sharing averages)."""

    bin_counts: IntArray
    """Bins per group: the width vector."""
    subnets: tuple[Subnet, ...]
    """The subnets that are trained: the chosen candidate, or all candidates if the sharing averages."""
    candidate: int
    """Number of the chosen candidate."""
    num_candidates: int
    """Number of candidates of the width vector."""
    trial_losses: tuple[float, ...]
    """Losses of the candidates as far as they were compared; empty if there was nothing to choose."""


@dataclass(frozen=True, eq=False)
class Step:
    """One training step: the loss, and the pick that it belongs to."""

    loss: Tensor
    """The loss with its graph, from which the backward pass starts."""
    pick: Pick
    """The width vector and the subnets that were trained."""


@dataclass(frozen=True, eq=False)
class StepRequest:
    """A step that `Supernet.forward` runs in place of a model's inputs.

    Accelerate puts its precision around the forward, so that trials run in it, too.
    """

    batch: Batch
    """The pair (inputs, target)."""
    loss_fn: LossFunction
    """Function of (output, target) that returns the mean loss."""
    bin_counts: IntArray | None
    """Bins per group, or None for a sampled width."""
    random_candidate: bool
    """True takes a random candidate instead of the best one."""

    def run(self, supernet: "Supernet") -> Step:
        """Run the trials and the training pass, and see that the processes of a training stay equal.

        Args:
            supernet: The supernet that is trained.

        Returns:
            The loss with its graph, and the pick that it belongs to.
        """
        supernet.exchange.begin(supernet)
        pick = supernet.pick(
            [self.batch], self.loss_fn, bin_counts=self.bin_counts, random_candidate=self.random_candidate
        )
        loss = supernet.loss(self.batch, pick, self.loss_fn)
        supernet.exchange.after_backward(supernet, loss)
        return Step(loss, pick)
