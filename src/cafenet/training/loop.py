"""The loop that all trainings share: steps in order, checkpoints, and a clean stop in every process."""

import math
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_map

from cafenet.common.interrupts import Stopped, graceful_stop
from cafenet.common.read_files import gone
from cafenet.common.run_log import RunLog
from cafenet.common.user_code import items_of, user_code
from cafenet.errors import CheckpointError
from cafenet.modules.digests import digest_of_parameters
from cafenet.training.batch_feed import Feed
from cafenet.training.checkpoint import expect_same_start, read_checkpoint, restoring, write_checkpoint
from cafenet.training.process_group import Processes

WITHOUT_EFFECT = ("num_workers", "checkpoint_every", "log_every")
"""Options that a resumed run may change, because they do not affect what is learned."""

_CHECKPOINT_SECONDS = 60.0
"""Seconds after which a checkpoint is written, whatever the number of steps."""


@dataclass(frozen=True)
class TrainResult:
    """The outcome of a training."""

    steps: int
    """Number of steps that are done."""
    last_loss: float
    """Loss of the last step."""
    finished: bool
    """Whether the last step of the training was reached."""


class SteppedTraining(ABC):
    """A training that continues from its checkpoint to its last step.

    Args:
        feed: Micro-batches of this process.
        team: This process among all processes.
        epochs: Number of passes over the data.
        checkpoint_every: Number of steps between checkpoints.
    """

    def __init__(self, feed: Feed, team: Processes, epochs: float, checkpoint_every: int) -> None:
        self.feed, self.team = feed, team
        self.total_steps = max(1, round(epochs * feed.steps_per_epoch))
        self.step = 0
        self.last_loss = math.nan
        self.checkpoint: Path | None = None
        """Path of the checkpoint."""
        self._checkpoint_every = checkpoint_every
        self._begins_with: dict[str, Any] = {}
        self._has_own_disk: bool | None = None
        self._is_missing_somewhere = False
        """Whether the checkpoint to continue from is missing on some host's disk."""
        self._saved_at = time.monotonic()

    @abstractmethod
    def _train_step(self, batches: list[Any]) -> Any:
        """Runs one optimiser step, and returns its outcome for `_tell`."""

    @abstractmethod
    def _tell(self, run_log: RunLog, outcome: Any, rate: float) -> None:
        """Shows and logs a step; `rate` is the number of examples per second over all processes."""

    @abstractmethod
    def _save(self) -> None:
        """Write a checkpoint."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Returns everything that a run continues from, including the random states of every process."""

    @abstractmethod
    def _weights(self) -> nn.Module:
        """Returns the model that is trained."""

    @abstractmethod
    def _identity(self) -> dict[str, Any]:
        """Returns everything that must be equal for a checkpoint to be continued."""

    @abstractmethod
    def _set_state(self, saved: Mapping[str, Any]) -> None:
        """Loads the content of a checkpoint."""

    def _restore(self, seed: int) -> None:
        """Continues from the checkpoint, or starts from the seed; all processes use what the first one reads."""
        torch.manual_seed(seed + self.team.rank)
        saved = self._saved()
        if saved is not None:
            with restoring(self.checkpoint):
                self._set_state(saved)
        if self._is_missing_somewhere:
            self._keep()

    def _saved(self) -> dict[str, Any] | None:
        """Returns the state to continue from, which is the same in every process, or None to begin anew.

        One process of each host reads its disk, and the checkpoint with the most steps counts: a host whose disk has it
        may have another rank than before. Without a checkpoint all begin with the state of the first process.
        """
        saved, problem = None, None
        if self.checkpoint is not None and self.team.writes:
            try:
                saved = self._read(self.checkpoint)
            except CheckpointError as error:
                problem = error
        if self.team.size == 1:
            if problem is not None:
                raise problem
            return saved
        step = -1 if saved is None else int(saved["step"])
        found = self.team.gather((step, problem and str(problem), self.team.writes))
        refused = next((text for _, text, _ in found if text), None)
        if refused is not None:  # in every process, so that none of them waits for the others
            raise problem or CheckpointError(refused)
        last = max(step for step, _, _ in found)
        source = [step for step, _, _ in found].index(last)
        self._is_missing_somewhere = any(writes and step < last for step, _, writes in found)
        start = self._state()  # asks every process
        self._begins_with = self.team.of(source, self._begins_with)
        return cast(dict[str, Any], self.team.of(source, tree_map(_on_cpu, start if saved is None else saved)))

    def _read(self, checkpoint: Path) -> dict[str, Any] | None:
        """Reads the checkpoint on this host's disk, if there is one."""
        saved = read_checkpoint(checkpoint, self._identity())
        self._begins_with = {"weights": digest_of_parameters(self._weights()), "data": self.feed.sketch()}
        if saved is not None:
            self._begins_with = expect_same_start(checkpoint, saved, self._begins_with)
        return saved

    def _keep(self) -> None:
        """Writes the state that `_saved` will return, once on every disk."""
        if self.checkpoint is None:
            return
        if self._has_own_disk is None:
            self._has_own_disk = has_own_disk(self.team, self.checkpoint.parent)
        state = self._state()  # asks every process
        if self._has_own_disk:
            if not self.checkpoint.parent.is_dir():  # the log created it, so it was removed since
                raise gone(self.checkpoint.parent)
            content = {"identity": self._identity(), "begins_with": self._begins_with, **state}
            write_checkpoint(self.checkpoint, content)
        self.team.barrier()

    def _set_step(self, saved: Mapping[str, Any]) -> None:
        """Restores the step of a checkpoint, which must lie inside the training."""
        step, loss = saved["step"], saved["last_loss"]
        if type(step) is not int or not 0 <= step <= self.total_steps or not isinstance(loss, float):
            raise ValueError(f"it stands at step {step!r:.20} of {self.total_steps} with the loss {loss!r:.20}")
        self.step, self.last_loss = step, loss

    def _random_state(self, device: torch.device) -> list[Any]:
        cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        return self.team.gather((torch.get_rng_state(), cuda))

    def _set_random_state(self, states: list[Any], device: torch.device) -> None:
        if not states:
            raise ValueError("it has no random states")
        if self.team.rank >= len(states):  # there are more processes than before
            torch.manual_seed(int(np.random.SeedSequence((self.step, self.team.rank)).generate_state(1)[0]))
            return
        cpu, cuda = states[self.team.rank]
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda, device)

    def _run_steps(self, run_log: RunLog, max_steps: int | None) -> TrainResult:
        """Trains to the end, or to `max_steps`; Ctrl-C and SIGTERM save a checkpoint first."""
        last = self.total_steps if max_steps is None else min(max_steps, self.total_steps)
        self._saved_at = time.monotonic()
        run_log.start(self.step)
        try:
            with graceful_stop() as stopped:
                self._loop(run_log, last, stopped)
        finally:
            run_log.close()
        if stopped:
            raise Stopped(f"stopped by {stopped[0]} after step {self.step}; start again to continue", stopped[0])
        return TrainResult(self.step, self.last_loss, self.step == self.total_steps)

    def _place(self) -> str:
        """Describes the current step, and the checkpoint that is kept."""
        return f"step {self.step + 1} of {self.total_steps} of the training{self._kept_checkpoint()}"

    def _kept_checkpoint(self) -> str:
        """Describes the checkpoint from which a second start continues, for messages."""
        if self.checkpoint is None or not self.checkpoint.exists():
            return ""
        return f"; the last checkpoint is kept in {self.checkpoint.parent}"

    def _loop(self, run_log: RunLog, last: int, stopped: list[str]) -> None:
        per_epoch = self.feed.steps_per_epoch
        start = time.perf_counter()
        while self.step < last:
            epoch = self.feed.epoch(self.step // per_epoch, self.step % per_epoch)
            for batches in items_of(epoch, "the training data", self._place):
                with user_code("the model", self._place):
                    outcome = self._train_step(batches)
                self.step += 1
                now = time.perf_counter()
                rate = self.feed.batch_size * len(batches) * self.team.size / (now - start)
                start = now
                self._tell(run_log, outcome, rate)
                if self.team.any(bool(stopped)) and not stopped:
                    stopped.append("another process")
                is_last = self.step >= last or bool(stopped)
                if is_last or self._is_due():
                    self._save()
                    self._saved_at = time.monotonic()
                if is_last:
                    return

    def _is_due(self) -> bool:
        """Return whether a checkpoint is due: by its steps, or by the time, as steps may be slow."""
        is_late = time.monotonic() - self._saved_at > _CHECKPOINT_SECONDS
        return self.team.any(is_late) or self.step % self._checkpoint_every == 0


def has_own_disk(team: Processes, directory: Path) -> bool:
    """Finds out whether this process writes into a directory: the first one does, and the first one of each host that
    does not see the first one's disk.

    Args:
        team: This process among all processes, all of which must call this.
        directory: The directory; it is made where it is written to.

    Returns:
        True if this process writes.
    """
    if team.size == 1:
        return True
    probe = directory / f".seen-by-{team.of_first(uuid.uuid4().hex)}"
    if team.is_first:
        directory.mkdir(parents=True, exist_ok=True)
        probe.touch()
    team.barrier()
    is_own = team.is_first or (team.writes and not probe.exists())
    team.barrier()
    if team.is_first:
        probe.unlink(missing_ok=True)
    if is_own:
        directory.mkdir(parents=True, exist_ok=True)
    return is_own


def _on_cpu(leaf: Any) -> Any:
    return leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf
