"""One training of a supernet: the work of a step, and the content and identity of a checkpoint."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, Dataset

from cafenet.common.run_log import RunLog
from cafenet.common.user_code import UserPart
from cafenet.errors import TrainingError
from cafenet.modules.batches import Batch, LossFunction, pair_of
from cafenet.modules.inputs import unknown_arguments
from cafenet.modules.randomness import same_randomness
from cafenet.modules.unwrapping import expect_values
from cafenet.space.importance import constants, restore_constants
from cafenet.space.layout import cuts
from cafenet.supernet.checkpointing_guard import checkpointing_error, is_from_checkpointing
from cafenet.supernet.sampling import SamplingConfig
from cafenet.supernet.step import Pick
from cafenet.supernet.supernet import Supernet
from cafenet.training.batch_feed import Feed
from cafenet.training.config import TrainConfig
from cafenet.training.distillation import Distillation, Teacher
from cafenet.training.loop import WITHOUT_EFFECT, SteppedTraining, TrainResult
from cafenet.training.losses import check_target, named_loss
from cafenet.training.optimizers import build_optimizer, learning_rate
from cafenet.training.process_group import Processes


class Trainer(SteppedTraining):
    """One training of a supernet: the state that a checkpoint holds, and the loop over steps."""

    def __init__(
        self,
        supernet: Supernet,
        data: Dataset[Any] | DataLoader[Any],
        config: TrainConfig,
        sampling: SamplingConfig,
        loss: str | LossFunction,
        directory: Path | None,
        team: Processes,
        name: str,
        teacher: nn.Module | None = None,
    ) -> None:
        """Prepare the training.

        Args:
            supernet: The supernet to train.
            data: A data set or a loader of pairs (inputs, target).
            config: Options of the training.
            sampling: Options of the sampling of widths, and of the distillation.
            loss: The loss, by name or as a function of (output, target).
            directory: Directory of the checkpoint, or None.
            team: The processes that train together.
            name: File name of the checkpoint without `.pt`.
            teacher: Model whose outputs are learned with `config.distill`, by default the supernet's own full network.

        Raises:
            TrainingError: If the options or the data cannot be used, or no parameter is trainable.
        """
        feed = Feed(
            data,
            batch_size=config.batch_size,
            seed=config.seed,
            rank=team.rank,
            world_size=team.size,
            accumulate=config.accumulate,
            examples_per_step=config.examples_per_step,
            num_workers=config.num_workers,
        )
        super().__init__(feed, team, config.epochs, config.checkpoint_every)
        self.supernet, self.config, self.sampling, self.directory = supernet, config, sampling, directory
        self.checkpoint = None if directory is None else directory / f"{name}.pt"
        self.loss_name = loss if isinstance(loss, str) else None
        expect_values(supernet, TrainingError)
        if not isinstance(loss, str):
            named_loss(loss, config)
            loss = UserPart(loss, "the loss", self._place)
        self.loss_fn = named_loss(loss, config)
        self.teacher: Teacher | None = None
        """The model whose outputs are learned, or None."""
        self.has_own_teacher = teacher is None
        """True if the teacher is the network that the supernet begins with. It is saved in the checkpoint, because a
        second start no longer has it."""
        if sampling.distill is not None:
            self.teacher = Teacher(supernet.model if teacher is None else teacher, supernet.device)
            self.loss_fn = Distillation(loss, sampling.distill, config.label_smoothing)
        self.parameters = [parameter for parameter in supernet.parameters() if parameter.requires_grad]
        if not self.parameters:
            raise TrainingError(
                "a model must have parameters to train, but requires_grad is False for all of its; set it for some"
            )
        self.optimizer = build_optimizer(config.optimizer, self.parameters)
        self.scaler = torch.amp.GradScaler(supernet.device.type, enabled=config.amp == "fp16")
        self.chosen: Counter[int] = Counter()
        """Number of steps in which each candidate was the best of its width, by its number; 0 is the leftmost."""
        self.output: Any = None
        """Output of the full network for one batch, after it has been checked."""

    def run(self, run_log: RunLog, max_steps: int | None) -> TrainResult:
        """Train from the checkpoint, if there is one, to the end.

        Args:
            run_log: The log of the training, which also shows its progress.
            max_steps: Number of steps after which training stops with a checkpoint, or None.

        Returns:
            The number of steps, the last loss, and whether training has finished.

        Raises:
            TrainingError: If a batch does not fit the model, or the loss is not finite.
        """
        supernet, config = self.supernet, self.config
        if config.channels_last:
            supernet.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        supernet.train()
        supernet.exchange.is_manual = True
        self._restore(config.seed)
        self.optimizer.zero_grad(set_to_none=True)
        try:
            return self._run_steps(run_log, max_steps)
        finally:
            supernet.exchange.is_manual = False

    def _train_step(self, batches: list[Any]) -> tuple[Pick, float]:
        """Make one optimiser step; a loss that is not finite ends the training before it does harm."""
        batches = [self._to_device(batch) for batch in batches]
        self._check_batches(batches)
        batches = [self._taught(batch) for batch in batches]
        lr = self._set_learning_rate()
        is_random = self.step < self.sampling.random_share * self.total_steps
        losses = []
        for bin_counts in self._widths():
            with self._autocast():
                pick = self.supernet.pick(batches, self.loss_fn, bin_counts=bin_counts, random_candidate=is_random)
            self.chosen.update([pick.candidate] if pick.trial_losses else [])
            for batch in batches:
                with self._autocast():
                    part = self.supernet.loss(batch, pick, self.loss_fn)
                losses.append(part.detach().double().cpu())
                self._backward(part / len(batches))
        loss = float(self.team.mean(torch.stack(losses).mean()))
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss must stay finite, but is {loss} at step {self.step + 1} (learning rate {lr:g}); "
                "lower the learning rate or clip gradients" + self._kept_checkpoint()
            )
        statistics = [buffer for buffer in self.supernet.buffers() if buffer.is_floating_point()]
        self.team.average([*(parameter.grad for parameter in self.parameters), *statistics])
        if self.config.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.last_loss = loss
        return pick, lr

    def _widths(self) -> list[Any]:
        """Return one sampled width, or the widest, the smallest and some sampled ones (the sandwich rule)."""
        band, spread, sandwich = self.sampling.flops_band, self.sampling.spread, self.sampling.sandwich
        if band == "budgets":  # no budget is known here
            band = None
        if not sandwich:
            return [self.supernet.sample(band, spread)]
        num_bins = self.supernet.binned.bins.num_bins
        return [num_bins, num_bins * 0 + 1, *(self.supernet.sample(band, spread) for _ in range(sandwich))]

    def _backward(self, loss: Tensor) -> None:
        """Run the backward pass; explain an error that gradient checkpointing causes."""
        try:
            self.scaler.scale(loss).backward()
        except (torch.utils.checkpoint.CheckpointError, RuntimeError) as error:
            if is_from_checkpointing(error):
                raise checkpointing_error() from error
            raise

    def _autocast(self) -> torch.autocast:
        """Return the autocast context of the configured precision."""
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.config.amp or "", torch.bfloat16)
        return torch.autocast(self.supernet.device.type, dtype=dtype, enabled=self.config.amp is not None)

    def _set_learning_rate(self) -> float:
        """Set the learning rate of this step and return it."""
        epoch = self.step / self.feed.steps_per_epoch
        lr = learning_rate(self.config.schedule, self.config.optimizer.lr, epoch, self.config.epochs)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        return lr

    def _to_device(self, batch: Any) -> Batch:
        """Move a batch to the device, in the configured memory format."""
        pair = pair_of(batch)
        if pair is None:
            raise TrainingError(f"a batch must be a pair (inputs, target) or a dict, but got {type(batch).__name__}")
        device = self.supernet.device

        def move(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            if self.config.channels_last and leaf.ndim == 4:
                return leaf.to(device, memory_format=torch.channels_last)
            return leaf.to(device)

        inputs, target = tree_map(move, pair)
        return inputs, target

    def _taught(self, batch: Batch) -> Batch:
        """Add the teacher's outputs to a batch, if there is a teacher."""
        if self.teacher is None:
            return batch
        with self._autocast():
            return self.teacher.teach(batch)

    def _check_batches(self, batches: list[Batch]) -> None:
        """Check labels before they are trained on; at the first step, check that the model can be trained."""
        is_first = self.output is None
        if is_first:
            self.output = self._first_output(batches[0])
        if self.loss_name is not None:
            for _, target in batches:
                check_target(self.loss_name, self.output, target)
        if is_first:
            self._try_backward(self._taught(batches[0]))

    def _first_output(self, batch: Batch) -> Any:
        """Return the output of the full network without changing any state."""
        unknown = unknown_arguments(self.supernet.model, batch[0])
        if unknown:
            raise TrainingError(
                "a dict batch must hold arguments of the model's forward, but it does not take "
                f"{', '.join(map(repr, unknown))}; rename the entries, or give pairs (inputs, target)"
            )
        try:
            with torch.no_grad(), same_randomness(self.supernet.device), self._autocast():
                return self.supernet._run(batch[0], self.supernet.full_cuts())
        except ValueError as error:
            if "more than 1 value per channel" in str(error):
                raise TrainingError(
                    f"batch norm needs more than one value per channel, but a batch of {self.feed.batch_size} gives "
                    "one; raise the batch size"
                ) from error
            raise

    def _try_backward(self, batch: Batch) -> None:
        """Run the narrowest subnet forward and back without changing any state; recomputation by checkpointing fails
        there."""
        supernet = self.supernet
        narrowest = supernet.binned.leftmost(supernet.binned.bins.num_bins * 0 + 1)
        with same_randomness(supernet.device), self._autocast():
            loss = self.loss_fn(supernet._run(batch[0], cuts(supernet.space.layout, narrowest)), batch[1])
            if not isinstance(loss, Tensor) or loss.ndim:
                shape = list(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
                raise TrainingError(f"a loss must be one number, the mean over the batch, but is {shape}")
            if not loss.requires_grad:
                raise TrainingError(
                    "a loss must have a gradient, but this one does not depend on the parameters; neither the forward "
                    "nor the loss may run under torch.no_grad or on detached tensors"
                )
            try:
                torch.autograd.grad(loss, self.parameters, allow_unused=True)
            except RuntimeError as error:
                if is_from_checkpointing(error):
                    raise checkpointing_error() from error
                raise

    def _tell(self, run_log: RunLog, outcome: tuple[Pick, float], rate: float) -> None:
        """Show progress, and log the step if it is due."""
        pick, lr = outcome
        run_log.show(self.step, f"loss {self.last_loss:.3f}, {rate:.0f} examples/s")
        if self.step % self.config.log_every == 0 or self.step in (1, self.total_steps):
            run_log.write(
                self.step,
                epoch=self.step / self.feed.steps_per_epoch,
                loss=self.last_loss,
                lr=lr,
                examples_per_second=rate,
                candidate=pick.candidate,
                num_candidates=pick.num_candidates,
                chosen={str(number): count for number, count in sorted(self.chosen.items())},
            )

    def _identity(self) -> dict[str, Any]:
        """Return everything that must be equal for a checkpoint to be continued."""
        supernet = self.supernet
        return {
            "shapes": {name: list(tensor.shape) for name, tensor in supernet.model.state_dict().items()},
            "bins": {group.name: [group.first, group.size] for group in supernet.binned.bins.groups},
            "sharing": repr(supernet.sharing),
            "choice": repr(supernet.choice),
            "config": {name: value for name, value in asdict(self.config).items() if name not in WITHOUT_EFFECT},
            "sampling": self._sampling_identity(),
            "loss": self._loss_identity(),
            "examples_per_step": self.feed.batch_size * self.feed.accumulate * self.team.size,
            "steps": self.total_steps,
        }

    def _sampling_identity(self) -> dict[str, Any]:
        """Return the options of sampling that a checkpoint must agree with, if there is more than one width."""
        if self.supernet.binned.bins.search_space_size == 1:
            return {}
        return {name: value for name, value in asdict(self.sampling).items() if name != "distill"}

    def _loss_identity(self) -> str:
        """Return the name of the loss for the identity of a checkpoint."""
        if self.loss_name is not None and self.teacher is None:
            return self.loss_name
        name: str = getattr(self.loss_fn, "__name__", type(self.loss_fn).__name__)
        return name

    def _weights(self) -> nn.Module:
        """Return the model that is trained."""
        return self.supernet.model

    def _state(self) -> dict[str, Any]:
        """Return everything that a run continues from; random states are those of every process."""
        return {
            "step": self.step,
            "last_loss": self.last_loss,
            "chosen": dict(self.chosen),
            "model": self.supernet.model.state_dict(),
            "constants": constants(self.supernet.space, self.supernet.model),
            "order": torch.from_numpy(self.supernet.order),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "generator": self.supernet.generator.get_state(),
            "rng": self._random_state(self.supernet.device),
            "teacher": self.teacher.model.state_dict() if self.teacher is not None and self.has_own_teacher else None,
        }

    def _save(self) -> None:
        """Write a checkpoint, unless a weight is not finite."""
        if not all(bool(parameter.isfinite().all()) for parameter in self.parameters):
            raise TrainingError(
                f"the weights must stay finite, but are not after step {self.step}; lower the learning rate or clip "
                "gradients" + self._kept_checkpoint()
            )
        self._keep()

    def _set_state(self, saved: Mapping[str, Any]) -> None:
        """Load the content of a checkpoint."""
        self._set_step(saved)
        self.chosen = Counter(saved.get("chosen", {}))
        self.supernet.model.load_state_dict(saved["model"])
        restore_constants(self.supernet.model, saved)
        if "order" in saved:  # the order of units in which the weights were saved
            self.supernet.order = saved["order"].numpy()
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scaler.load_state_dict(saved["scaler"])
        if self.teacher is not None and self.has_own_teacher:
            self.teacher.model.load_state_dict(saved["teacher"])
        self.supernet.generator.set_state(saved["generator"])
        self._set_random_state(saved["rng"], self.supernet.device)
