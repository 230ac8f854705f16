"""The supernet: one set of full-width weights that evaluates every width through several subnets.

Building blocks for any training loop:

    supernet = Supernet(model, space, bins, LocallyFree(r=1))
    for inputs, target in loader:
        step = supernet.step((inputs, target), nn.functional.cross_entropy)
        step.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cafenet.errors import TrainingError
from cafenet.modules.batches import Batch, LossFunction, batch_size, part_of
from cafenet.modules.calling import call_arguments, copy_of, unwrap
from cafenet.space.bins import Bins, IntArray, balanced_rows, flops_sensitive_bins
from cafenet.space.layout import Cut, Subnet, cuts
from cafenet.space.slicing import Gatherer, Harness, slice_tensors
from cafenet.space.width_space import WidthSpace
from cafenet.supernet.candidate_choice import Choice, Race
from cafenet.supernet.sharing import BinnedSpace, LocallyFree, Pattern, check_pattern


@dataclass(frozen=True, eq=False)
class Pick:
    """What a step trains: a width vector and the candidate (or, for averaging patterns, all of them) that stands for
    it."""

    taken: IntArray
    """Bins per group: the width vector."""
    subnets: tuple[Subnet, ...]
    candidate: int
    num_candidates: int
    trial_losses: tuple[float, ...]
    """The candidates' losses as far as they were compared; empty where there was nothing to choose."""


@dataclass(frozen=True, eq=False)
class Step:
    """One training step: the loss to go backward from, and what it is the loss of."""

    loss: Tensor
    pick: Pick


class Supernet(nn.Module):
    """Owns a copy of the model; the user's own is never trained."""

    def __init__(
        self,
        model: nn.Module,
        space: WidthSpace,
        bins: Bins | None = None,
        pattern: Pattern | None = None,
        *,
        choice: Choice | None = None,
        seed: int = 0,
        order: IntArray | None = None,
    ) -> None:
        """bins: by default FLOPs-sensitive ones; pattern: by default the fixed one, as in `SupernetConfig`.

        order: which unit of the user's model each unit of this one is, where the model was put in another order.
        """
        super().__init__()
        bins = flops_sensitive_bins(space) if bins is None else bins
        self.pattern: Pattern = LocallyFree() if pattern is None else pattern
        check_pattern(self.pattern, bins)
        self.model = copy_of(unwrap(model))
        self.space, self.binned = space, BinnedSpace(space, bins)
        self.harness = Harness(self.model, space.layout)
        self.choice: Choice = Race() if choice is None else choice
        self.generator = torch.Generator().manual_seed(seed)
        self.first_order: IntArray = np.arange(space.layout.num_units) if order is None else order
        self.order = self.first_order
        """The same now: a training may put the most important units in front."""
        self.reduce: Callable[[Tensor], Tensor] = unreduced
        """Averages losses over processes, so that all of them make the same choice; the identity for one process."""
        self._is_graph_checked = False

    def forward(self, inputs: Any, subnet: Subnet | None = None) -> Any:
        """The output of a subnet (all channels by default); in train mode, batch-norm statistics are written back."""
        chosen = cuts(self.space.layout, self.full() if subnet is None else subnet)
        return self._run(inputs, chosen, keep_buffers=self.training)

    def full(self) -> Subnet:
        """The subnet of all channels."""
        return self.binned.leftmost(self.binned.bins.num_bins)

    def full_cuts(self) -> tuple[Cut, ...]:
        """The full subnet, ready to run."""
        return cuts(self.space.layout, self.full())

    def sample(self, flops_band: tuple[float, float] | None = None, spread: float = 0.3) -> IntArray:
        """A width vector, uniform over the bins of each group.

        flops_band: a share of the full FLOPs is drawn from this band instead, and the vector comes near it. Its groups'
        shares lie about one share, their logarithms with the standard deviation `spread`.
        """
        num_bins = torch.as_tensor(self.binned.num_bins)
        uniform = torch.rand(len(num_bins), generator=self.generator, dtype=torch.float64)
        if flops_band is None:
            return (uniform * num_bins).long().add_(1).numpy()
        low, high = flops_band
        wanted = low + (high - low) * torch.rand((), generator=self.generator, dtype=torch.float64).item()
        normal = torch.special.ndtri(uniform).clamp(-8, 8)
        rows = balanced_rows(num_bins.numpy(), (spread * normal).numpy())
        flops = self.space.flops(self.binned.bins.widths(rows))
        nearest: IntArray = rows[abs(flops - wanted * self.space.flops()).argmin()]
        return nearest

    def candidates(self, taken: IntArray) -> list[Subnet]:
        """The subnets that stand for a width vector."""
        return self.pattern.candidates(self.binned, taken, self.generator)

    def step(
        self, batch: Batch, loss_fn: LossFunction, *, taken: IntArray | None = None, random_candidate: bool = False
    ) -> Step:
        """Sample a width, find its best candidate without a trace, and return that one's loss with its graph.

        taken: a width of your own instead, in bins; `supernet.sample((0.35, 0.65))` for one near half the FLOPs.
        """
        pick = self.pick([batch], loss_fn, taken=taken, random_candidate=random_candidate)
        return Step(self.loss(batch, pick, loss_fn), pick)

    def pick(
        self,
        batches: Sequence[Batch],
        loss_fn: LossFunction,
        *,
        taken: IntArray | None = None,
        random_candidate: bool = False,
    ) -> Pick:
        """Decide what to train on these batches (one, or all that a step accumulates): one choice for all."""
        taken = self.sample() if taken is None else taken
        candidates = self.candidates(taken)
        if self.pattern.averages or len(candidates) == 1:
            return Pick(taken, tuple(candidates), 0, len(candidates), ())
        seen: list[float] = []
        if random_candidate:
            number = int(torch.randint(len(candidates), (), generator=self.generator))
        else:
            number, seen = self.choose(batches, candidates, loss_fn)
        return Pick(taken, (candidates[number],), number, len(candidates), tuple(seen))

    def loss(self, batch: Batch, pick: Pick, loss_fn: LossFunction) -> Tensor:
        """The training loss of a pick, with its graph; batch-norm statistics of the trained channels are kept."""
        inputs, target = batch
        losses = [loss_fn(self(inputs, subnet), target) for subnet in pick.subnets]
        if not self._is_graph_checked:
            refuse_reentrant_checkpointing(losses[0])
            self._is_graph_checked = True
        return torch.stack(losses).mean() if len(losses) > 1 else losses[0]

    def choose(
        self, batches: Sequence[Batch], candidates: list[Subnet], loss_fn: LossFunction
    ) -> tuple[int, list[float]]:
        """The number of the best candidate by the supernet's way to choose, and the losses that it saw."""
        prepared = [cuts(self.space.layout, candidate) for candidate in candidates]
        sizes = [batch_size(batch) for batch in batches]

        def losses(numbers: Sequence[int], start: float, stop: float) -> Tensor:
            parts = [
                part_of(b, round(start * n), max(round(stop * n), round(start * n) + 1))
                for b, n in zip(batches, sizes, strict=True)
            ]
            return self.reduce(self._trial_losses(parts, [prepared[number] for number in numbers], loss_fn))

        return self.choice.best(len(candidates), min(sizes), losses, self.generator)

    def trial_losses(self, batch: Batch, candidates: list[Subnet], loss_fn: LossFunction) -> list[float]:
        """The exact loss of every candidate on the whole batch, leaving no trace."""
        prepared = [cuts(self.space.layout, candidate) for candidate in candidates]
        losses: list[float] = self._trial_losses([batch], prepared, loss_fn).tolist()
        return losses

    def _trial_losses(self, batches: Sequence[Batch], prepared: list[tuple[Cut, ...]], loss_fn: LossFunction) -> Tensor:
        losses = []
        with torch.no_grad(), same_randomness(self.device) as rewind:
            gatherer = self.harness.gatherer()
            for chosen in prepared:
                rewind()
                each = [loss_fn(self._try(inputs, gatherer, chosen), target) for inputs, target in batches]
                losses.append(torch.stack([loss.double().cpu() for loss in each]).mean())
        torch.clear_autocast_cache()  # weights that were cast without a graph must not serve the training pass
        return torch.stack(losses)

    def _try(self, inputs: Any, gatherer: Gatherer, chosen: tuple[Cut, ...]) -> Any:
        """The model's own forward on a part of its tensors, without a graph; what it writes is thrown away."""
        args, kwargs = call_arguments(inputs)
        return self.harness.run(gatherer.part(chosen), chosen, args, kwargs)

    def _run(self, inputs: Any, chosen: tuple[Cut, ...], keep_buffers: bool = False) -> Any:
        """The model's own forward on a part of its tensors; buffers are clones, kept or thrown away after it."""
        args, kwargs = call_arguments(inputs)
        layout, buffers = self.space.layout, self.harness.buffers()
        sliced = slice_tensors(self.harness.parameters(), layout, chosen)
        part = {name: tensor.clone() for name, tensor in slice_tensors(buffers, layout, chosen).items()}
        tensors = {**sliced, **part}  # buffers that the forward replaces are put into this dict
        output = self.harness.run(tensors, chosen, args, kwargs)
        if keep_buffers:
            self._write_back(buffers, tensors, chosen)
        return output

    @torch.no_grad()
    def _write_back(self, buffers: dict[str, Tensor], part: dict[str, Tensor], chosen: tuple[Cut, ...]) -> None:
        for name, buffer in buffers.items():
            dims = self.space.layout.axes.get(name, {})
            if len(dims) == 1:
                ((dim, pattern),) = dims.items()
                chosen[pattern].assign(buffer, dim, part[name])
            elif not dims:
                buffer.copy_(part[name])

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


def unreduced(losses: Tensor) -> Tensor:
    """Losses as they are, for one process."""
    return losses


def checkpointing_error() -> TrainingError:
    """Why gradient checkpointing is refused."""
    return TrainingError(
        "a model with gradient checkpointing cannot be a supernet: its recomputation in the backward pass would not "
        "see the subnet's channels; switch checkpointing off"
    )


def refuse_reentrant_checkpointing(loss: Tensor) -> None:
    """Reentrant checkpoints recompute at full width, often without an error; the other kind always ends in one."""
    nodes, met = [loss.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in met:
            continue
        if node.name() == "CheckpointFunctionBackward":
            raise checkpointing_error()
        met.add(node)
        nodes += [following for following, _ in node.next_functions]


@contextmanager
def same_randomness(device: torch.device) -> Iterator[Callable[[], None]]:
    """Gives a function that rewinds the random numbers to where they were, and rewinds once more at the end."""
    cpu = torch.get_rng_state()
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def rewind() -> None:
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda, device)

    try:
        yield rewind
    finally:
        rewind()
