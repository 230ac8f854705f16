"""The supernet: one set of full-width weights, in which several subnets stand for every width.

It is what every training of widths is made of, ours and those of other libraries. Users meet it as `cafenet.Supernet`
(`pipeline/own_loop.py`), which also traces the model, knows the budget and searches.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from cafenet.common.garbage import put_off_collection
from cafenet.common.options import MadeBy, Seed, check_arguments
from cafenet.common.user_code import user_code
from cafenet.errors import BinError, CheckpointError, TrainingError
from cafenet.modules.batches import Batch, LossFunction, batch_size, part_of
from cafenet.modules.copying import copy_of
from cafenet.modules.inputs import call_arguments
from cafenet.modules.randomness import same_randomness
from cafenet.modules.unwrapping import refuse_pieces, unwrap
from cafenet.space.bins import Bins, IntArray, balanced_rows, flops_sensitive_bins
from cafenet.space.gathering import Gatherer
from cafenet.space.layout import Cut, Subnet, cuts
from cafenet.space.slicing import Harness, slice_tensors
from cafenet.space.width_space import TracedSpace, WidthSpace
from cafenet.supernet.candidate_choice import Choice, Race
from cafenet.supernet.checkpointing_guard import refuse_reentrant_checkpointing
from cafenet.supernet.exchange import Exchange
from cafenet.supernet.sharing import BinnedSpace, LocallyFree, Sharing, check_sharing
from cafenet.supernet.slim import Found, slim_model
from cafenet.supernet.step import Pick, Step, StepRequest
from cafenet.supernet.step_checks import STEP, CheckedLoss, checked_counts, checked_pair


class Supernet(nn.Module):
    """One set of full-width weights that all widths share.

    The supernet owns a copy of the model; the user's own model is never trained.

    Example:
        >>> import cafenet, torch
        >>> from torch import nn
        >>> from cafenet.space.bins import uniform_bins
        >>> from cafenet.supernet.supernet import Supernet
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
        >>> images, labels = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
        >>> space = cafenet.trace(model, images)
        >>> supernet = Supernet(model, space, uniform_bins(space, 8))
        >>> step = supernet.step((images, labels), nn.functional.cross_entropy)
        >>> step.loss.backward()
    """

    def __init__(
        self,
        model: nn.Module,
        space: WidthSpace,
        bins: Bins | None = None,
        sharing: Sharing | None = None,
        *,
        choice: Choice | None = None,
        seed: int = 0,
        order: IntArray | None = None,
        flops_band: tuple[float, float] | None = None,
    ) -> None:
        """Copy the model and prepare its subnets.

        Args:
            model: The model; it is not changed.
            space: The width space of the model, from `cafenet.trace`.
            bins: The bins of its groups, by default FLOPs-sensitive ones.
            sharing: The rule by which widths share weights; by default the fixed sharing, `LocallyFree(0)`.
            choice: Way to find the best candidate, by default `Race()`.
            seed: Seed of the sampled widths and candidates.
            order: For a model whose units were reordered: the unit of the user's model that each unit came from.
            flops_band: Smallest and largest share of the full FLOPs of the widths that `step` and `pick` sample, by
                default all widths.

        Raises:
            BinError: If an argument is not valid, the bins belong to another width space, or the sharing does not fit
                them.
        """
        super().__init__()
        made_bins = Annotated[Bins, MadeBy("flops_sensitive_bins or uniform_bins")]
        check_arguments(BinError, space=(space, TracedSpace), bins=(bins, made_bins | None), seed=(seed, Seed))
        bins = flops_sensitive_bins(space) if bins is None else bins
        self.sharing: Sharing = LocallyFree() if sharing is None else sharing
        check_sharing(self.sharing, bins)
        if choice is not None and not callable(getattr(choice, "best", None)):
            raise BinError(f"choice must be Race() or Exact(), or have their method `best`, but is {choice!r}")
        self.model = copy_of(unwrap(model))
        self.space, self.binned = space, BinnedSpace(space, bins)
        self.harness = Harness(self.model, space.layout)
        self.choice: Choice = Race() if choice is None else choice
        self.generator = torch.Generator().manual_seed(seed)
        self.first_order: IntArray = np.arange(space.layout.num_units) if order is None else order
        """Unit of the user's model that each unit came from, at the start."""
        self.order = self.first_order
        """Current order of the units; changes when training sorts them by importance."""
        self.flops_band = flops_band
        """Band of the widths that `step` and `pick` sample, or None for all widths."""
        self.exchange = Exchange()
        """Exchange of trial losses, gradients and batch-norm statistics between processes that train together."""
        self._is_graph_checked = False

    def forward(self, inputs: Any, subnet: Subnet | None = None) -> Any:
        """Run a subnet; in train mode, batch-norm statistics are written back to the supernet.

        Args:
            inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments.
            subnet: The subnet, by default that of all channels.

        Returns:
            The output of the model.
        """
        if isinstance(inputs, StepRequest):
            return inputs.run(self)
        chosen = cuts(self.space.layout, self.full() if subnet is None else subnet)
        return self._run(inputs, chosen, keep_buffers=self.training)

    def full(self) -> Subnet:
        """Return the subnet of all channels."""
        return self.binned.leftmost(self.binned.bins.num_bins)

    def full_cuts(self) -> tuple[Cut, ...]:
        """Return the subnet of all channels in the form in which tensors are sliced."""
        return cuts(self.space.layout, self.full())

    def sample(self, flops_band: tuple[float, float] | None = None, spread: float = 0.3) -> IntArray:
        """Sample a width vector, by default uniformly over the bins of each group.

        Args:
            flops_band: Smallest and largest share of the full FLOPs. A share is drawn from this band, and a vector near
                it is returned.
            spread: Standard deviation of the logarithms of the groups' shares within a band.

        Returns:
            Bins per group.
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

    def candidates(self, bin_counts: IntArray) -> list[Subnet]:
        """Return the subnets that stand for a width vector.

        Args:
            bin_counts: Bins per group.

        Returns:
            The distinct candidates.
        """
        return self.sharing.candidates(self.binned, bin_counts, self.generator)

    def step(
        self,
        batch: Any,
        loss_fn: str | LossFunction,
        *,
        bin_counts: IntArray | None = None,
        random_candidate: bool = False,
    ) -> Step:
        """Sample a width, find its best candidate, and compute the loss of that candidate with its graph.

        The comparison of candidates changes neither weights nor statistics nor random states, and runs in the
        precision of the training pass. If several processes train together, all of them train the same candidate, and
        the backward pass of the loss averages the gradients over them, with or without `DistributedDataParallel`.

        Args:
            batch: A pair (inputs, target), or a dict that the model is called with, whose entry `labels` is the target.
            loss_fn: Function of (output, target) that returns the mean loss, or the name of a loss: "cross_entropy",
                "bce", or "model" for the `loss` in the model's own output.
            bin_counts: Bins per group of a width of your own, for example `supernet.sample((0.35, 0.65))` for one near
                half the FLOPs.
            random_candidate: If True, a random candidate is taken instead of the best one.

        Returns:
            The loss, and the width and subnets that it belongs to.

        Raises:
            TrainingError: If the batch is neither a pair nor a dict, the loss is unknown or does not fit it, the model
                uses reentrant gradient checkpointing, or its parameters are cut in pieces.
            BinError: If `bin_counts` is no width of this supernet.
        """
        pair, checked = checked_pair(batch), CheckedLoss(loss_fn)
        if bin_counts is not None:
            bin_counts = checked_counts(bin_counts, self.binned.num_bins)
        if not self._is_graph_checked:
            refuse_pieces(self, TrainingError)
        # Through __call__, because Accelerate puts its precision around the forward: around trials, too, then.
        with user_code("the model", STEP):
            step: Step = self(StepRequest(pair, checked, bin_counts, random_candidate))
        return step

    def pick(
        self,
        batches: Sequence[Batch],
        loss_fn: LossFunction,
        *,
        bin_counts: IntArray | None = None,
        random_candidate: bool = False,
    ) -> Pick:
        """Decide which width and candidate to train on some batches: one choice for all of them.

        Args:
            batches: One batch, or all batches whose gradients a step accumulates.
            loss_fn: Function of (output, target) that returns the mean loss.
            bin_counts: Bins per group, by default a sampled width.
            random_candidate: If True, a random candidate is taken instead of the best one.

        Returns:
            The choice.
        """
        bin_counts = self.sample(self.flops_band) if bin_counts is None else bin_counts
        with put_off_collection():
            candidates = self.candidates(bin_counts)
            if self.sharing.averages or len(candidates) == 1:
                return Pick(bin_counts, tuple(candidates), 0, len(candidates), ())
            seen: list[float] = []
            if random_candidate:
                number = int(torch.randint(len(candidates), (), generator=self.generator))
            else:
                number, seen = self.choose(batches, candidates, loss_fn)
        return Pick(bin_counts, (candidates[number],), number, len(candidates), tuple(seen))

    def loss(self, batch: Batch, pick: Pick, loss_fn: LossFunction) -> Tensor:
        """Compute the training loss of a pick with its graph; batch-norm statistics of the trained channels are kept.

        Args:
            batch: A pair (inputs, target).
            pick: The choice from `pick`.
            loss_fn: Function of (output, target) that returns the mean loss.

        Returns:
            The loss, averaged over the subnets of the pick.

        Raises:
            TrainingError: If the model uses reentrant gradient checkpointing.
        """
        inputs, target = batch
        # Not through __call__: a step did that, and a precision that a library puts around it is not entered twice.
        chosen = [cuts(self.space.layout, subnet) for subnet in pick.subnets]
        losses = [loss_fn(self._run(inputs, each, keep_buffers=self.training), target) for each in chosen]
        if not self._is_graph_checked:
            refuse_reentrant_checkpointing(losses[0])
            self._is_graph_checked = True
        return torch.stack(losses).mean() if len(losses) > 1 else losses[0]

    def choose(
        self, batches: Sequence[Batch], candidates: list[Subnet], loss_fn: LossFunction
    ) -> tuple[int, list[float]]:
        """Find the best candidate by the supernet's way to choose.

        Args:
            batches: The batches on which candidates are compared.
            candidates: The subnets.
            loss_fn: Function of (output, target) that returns the mean loss.

        Returns:
            The number of the best candidate, and the losses that were seen.
        """
        prepared, gatherer = [cuts(self.space.layout, candidate) for candidate in candidates], self.harness.gatherer()
        sizes = [batch_size(batch) for batch in batches]

        def losses(numbers: Sequence[int], start: float, stop: float) -> Tensor:
            parts = [
                part_of(b, round(start * n), max(round(stop * n), round(start * n) + 1))
                for b, n in zip(batches, sizes, strict=True)
            ]
            return self.exchange.mean(
                self._trial_losses(parts, gatherer, [prepared[number] for number in numbers], loss_fn)
            )

        return self.choice.best(len(candidates), min(sizes), losses, self.generator)

    def trial_losses(self, batch: Batch, candidates: list[Subnet], loss_fn: LossFunction) -> list[float]:
        """Compute the exact loss of every candidate on the whole batch without changing any state.

        Args:
            batch: A pair (inputs, target).
            candidates: The subnets.
            loss_fn: Function of (output, target) that returns the mean loss.

        Returns:
            One loss per candidate.
        """
        prepared = [cuts(self.space.layout, candidate) for candidate in candidates]
        losses: list[float] = self._trial_losses([batch], self.harness.gatherer(), prepared, loss_fn).tolist()
        return losses

    def _trial_losses(
        self, batches: Sequence[Batch], gatherer: Gatherer, prepared: list[tuple[Cut, ...]], loss_fn: LossFunction
    ) -> Tensor:
        """Compute the mean losses of candidates without a graph; all candidates see the same random numbers."""
        losses = []
        with torch.no_grad(), same_randomness(self.device) as rewind:
            for chosen in prepared:
                rewind()
                with put_off_collection():
                    each = [loss_fn(self._try(inputs, gatherer, chosen), target) for inputs, target in batches]
                losses.append(torch.stack([loss.double().cpu() for loss in each]).mean())
        torch.clear_autocast_cache()  # the training pass must not use weights that were cast without a graph
        return torch.stack(losses)

    def _try(self, inputs: Any, gatherer: Gatherer, chosen: tuple[Cut, ...]) -> Any:
        """Run the model's own forward on sliced tensors without a graph; values that it writes are discarded."""
        args, kwargs = call_arguments(inputs)
        return self.harness.run(gatherer.part(chosen), chosen, args, kwargs, keep_buffers=False)

    def _run(self, inputs: Any, chosen: tuple[Cut, ...], keep_buffers: bool = False) -> Any:
        """Run the model's own forward on sliced tensors; buffers are clones that are written back or discarded
        afterwards."""
        args, kwargs = call_arguments(inputs)
        layout, buffers = self.space.layout, self.harness.buffers()
        sliced = slice_tensors(self.harness.parameters(), layout, chosen)
        part = {name: tensor.clone() for name, tensor in slice_tensors(buffers, layout, chosen).items()}
        tensors = {**sliced, **part}  # the forward puts buffers that it replaces into this dict
        output = self.harness.run(tensors, chosen, args, kwargs)
        if keep_buffers:
            self._write_back(buffers, tensors, chosen)
        return output

    @torch.no_grad()
    def _write_back(self, buffers: dict[str, Tensor], part: dict[str, Tensor], chosen: tuple[Cut, ...]) -> None:
        """Write the buffers of a subnet into those of the supernet."""
        for name, buffer in buffers.items():
            dims = self.space.layout.axes.get(name, {})
            if len(dims) == 1:
                ((dim, pattern),) = dims.items()
                chosen[pattern].assign(buffer, dim, part[name])
            elif not dims:
                buffer.copy_(part[name])

    def slim(self, result: Found, data: Any, *, num_examples: int = 4096) -> nn.Module:
        """Build the slim model of a search's result, with batch-norm statistics of its own.

        The statistics of a supernet are those of many widths; a slim model that keeps them scores near chance.

        Args:
            result: The result of `search_widths`, or anything with `channels` by group name.
            data: Training data: a data set of (inputs, target), or a loader or other iterable of such batches.
            num_examples: Number of examples over which the statistics are averaged.

        Returns:
            The slim model in eval mode.

        Raises:
            TrainingError: If the model has batch norm and the data are empty.
        """
        return slim_model(self.space, self.model, result, data, num_examples)

    def get_extra_state(self) -> Tensor:
        """Return what a checkpoint needs beside weights: the state of the sampling and the order of the units.

        Returns:
            The bytes of both, as a tensor, because some checkpoints hold nothing else.
        """
        order = torch.from_numpy(np.ascontiguousarray(self.order, dtype=np.int64))
        return torch.cat([self.generator.get_state(), order.view(torch.uint8)])

    def set_extra_state(self, state: Tensor) -> None:
        """Continue the sampling of a checkpoint.

        Args:
            state: The state that `get_extra_state` returned.

        Raises:
            CheckpointError: If it belongs to a supernet of another model.
        """
        size = self.generator.get_state().numel()
        if not isinstance(state, Tensor) or state.dtype != torch.uint8:
            raise CheckpointError(
                f"_extra_state must be the tensor of bytes that a supernet saved, but is {state!r:.80}"
            )
        state = state.cpu()
        if state.numel() != size + 8 * self.space.layout.num_units:
            raise CheckpointError(
                "the weights must belong to a supernet of the same model, but have another number of channels"
            )
        self.generator.set_state(state[:size].clone())
        self.order = state[size:].clone().view(torch.int64).numpy()

    @property
    def device(self) -> torch.device:
        """Device of the supernet's weights."""
        return next(self.model.parameters()).device
