"""Training of a detector: SGD with steps, as in the paper; resumable bit for bit, also under torchrun.

The paper trains 12 epochs with a learning rate of 0.08 at 256 images per step, which drops by 10 at epochs 8 and 11
(appendix a2). Our additions are a learning rate that scales with the number of images per step, so that it suits
smaller machines, and the warm-up.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from cafenet.common.options import NumProcesses, Positive, PositiveInt, Seed, check_options
from cafenet.common.run_log import RunLog
from cafenet.common.run_places import DETECTOR_CHECKPOINT
from cafenet.detection.detectors import Detector
from cafenet.detection.images import Pictures, loader
from cafenet.errors import TrainingError
from cafenet.training.batch_feed import Feed
from cafenet.training.loop import WITHOUT_EFFECT, SteppedTraining, TrainResult
from cafenet.training.optimizers import OptimizerConfig, ScheduleConfig, build_optimizer, learning_rate
from cafenet.training.process_group import processes

PAPER_BATCH = 256
"""Number of images per step that the paper's learning rate belongs to."""


@dataclass(frozen=True)
class DetectionTraining:
    """Training of detectors, the same for all of them."""

    epochs: Positive = 12
    """Passes over the data; a fraction stops inside the last one."""
    batch_size: PositiveInt = 16
    """Images per micro-batch and process."""
    accumulate: PositiveInt = 1
    """Micro-batches per step and process."""
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(lr=0.08))
    """The optimiser; its learning rate is that of 256 images per step, see scale_lr."""
    scale_lr: bool = True
    """Multiply the learning rate by the images per step over 256: 16 images train at 0.005 if 256 train at 0.08 (our
    addition)."""
    schedule: ScheduleConfig = field(default_factory=lambda: ScheduleConfig(name="step", milestones=(8, 11)))
    """Course of the learning rate."""
    clip_norm: Positive | None = None
    """Largest norm of all gradients together."""
    channels_last: bool = False
    """Store images and weights with channels last; depthwise convolutions then take half the time on a CPU."""
    num_workers: NumProcesses = 0
    """Processes that prepare images."""
    seed: Seed = 0
    """Seed of the order of images and of random choices."""
    checkpoint_every: PositiveInt = 200
    """Steps between checkpoints; one more is written at the end, on Ctrl-C and on SIGTERM."""
    log_every: PositiveInt = 10
    """Steps between lines of the log."""

    def __post_init__(self) -> None:
        check_options(self, TrainingError)


def train_detector(
    detector: Detector,
    pictures: Pictures,
    config: DetectionTraining | None = None,
    *,
    directory: str | Path | None = None,
    quiet: bool = False,
    title: str = "detector",
    max_steps: int | None = None,
) -> TrainResult:
    """Train a detector in place.

    With a directory (`detector.pt`, `log.jsonl`), a second call continues where the first one stopped.

    Args:
        detector: The detector; its weights are trained.
        pictures: The training images.
        config: Options of the training.
        directory: Directory of the checkpoint and the log.
        quiet: If True, no progress is shown.
        title: Text in front of the progress.
        max_steps: Total number of steps after which training stops with a checkpoint, as an interruption would stop it.

    Returns:
        The number of steps, the last loss, and whether training has finished.

    Raises:
        TrainingError: If the data do not fill a step, or the loss does not stay finite.
        CheckpointError: If the checkpoint in the directory belongs to another training or cannot be read.
    """
    config = DetectionTraining() if config is None else config
    trainer = _Trainer(detector, pictures, config, None if directory is None else Path(directory))
    return trainer.run(quiet, title, max_steps)


class _Trainer(SteppedTraining):
    """One training: the state that a checkpoint holds, and the loop over steps."""

    def __init__(
        self, detector: Detector, pictures: Pictures, config: DetectionTraining, directory: Path | None
    ) -> None:
        team = processes()
        data: DataLoader[Any] = loader(pictures, config.batch_size, config.num_workers)
        feed = Feed(
            data,
            batch_size=config.batch_size,
            seed=config.seed,
            rank=team.rank,
            world_size=team.size,
            accumulate=config.accumulate,
        )
        super().__init__(feed, team, config.epochs, config.checkpoint_every)
        self.detector, self.config, self.directory = detector, config, directory
        self.checkpoint = None if directory is None else directory / DETECTOR_CHECKPOINT
        self.images_per_step = config.batch_size * config.accumulate * team.size
        if config.channels_last:
            detector.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.device = next(detector.parameters()).device
        self.parameters = [parameter for parameter in detector.parameters() if parameter.requires_grad]
        self.optimizer = build_optimizer(config.optimizer, self.parameters)

    def run(self, quiet: bool, title: str, max_steps: int | None) -> TrainResult:
        """Train from the checkpoint, if there is one, to the end."""
        team = self.team
        self.detector.train()
        self._restore(self.config.seed)
        run_log = RunLog(
            self.directory if team.is_first else None, self.total_steps, title=title, quiet=quiet or not team.is_first
        )
        return self._run_steps(run_log, max_steps)

    def _train_step(self, batches: list[Any]) -> tuple[dict[str, float], float]:
        """Make one optimiser step; return the mean of each loss, and the learning rate."""
        lr = self._set_learning_rate()
        totals: dict[str, float] = {}
        for images, targets in batches:
            losses: dict[str, Tensor] = self.detector(self._moved(images), [self._moved(each) for each in targets])
            torch.stack(list(losses.values())).sum().div(len(batches)).backward()
            for name, value in losses.items():
                totals[name] = totals.get(name, 0.0) + float(value.detach()) / len(batches)
        means = self.team.mean(torch.tensor(list(totals.values()), dtype=torch.float64)).tolist()
        self.last_loss = sum(means)
        if not math.isfinite(self.last_loss):
            raise TrainingError(
                f"the loss must stay finite, but is {self.last_loss} at step {self.step + 1} (learning rate {lr:g}); "
                "lower train.optimizer.lr, add train.schedule.warmup_epochs or set train.clip_norm"
            )
        buffers = [buffer for buffer in self.detector.buffers() if buffer.is_floating_point()]
        self.team.average([*(parameter.grad for parameter in self.parameters), *buffers])
        if self.config.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return dict(zip(totals, means, strict=True)), lr

    def _set_learning_rate(self) -> float:
        """Set the learning rate of this step and return it."""
        config = self.config
        full = config.optimizer.lr * (self.images_per_step / PAPER_BATCH if config.scale_lr else 1.0)
        lr = learning_rate(config.schedule, full, self.step / self.feed.steps_per_epoch, config.epochs)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        return lr

    def _moved(self, values: Any) -> Any:
        """Move images or targets to the device."""
        if isinstance(values, dict):
            return {name: value.to(self.device) for name, value in values.items()}
        return [value.to(self.device) for value in values]

    def _tell(self, run_log: RunLog, outcome: tuple[dict[str, float], float], rate: float) -> None:
        """Show progress, and log the step if it is due."""
        parts, lr = outcome
        run_log.show(self.step, f"loss {self.last_loss:.3f}, {rate:.1f} images/s")
        if self.step % self.config.log_every == 0 or self.step in (1, self.total_steps):
            epoch = self.step / self.feed.steps_per_epoch
            run_log.write(self.step, epoch=epoch, loss=self.last_loss, **parts, lr=lr, images_per_second=rate)

    def _identity(self) -> dict[str, Any]:
        """Return everything that must be equal for a checkpoint to be continued."""
        return {
            "shapes": {name: list(tensor.shape) for name, tensor in self.detector.state_dict().items()},
            "config": {name: value for name, value in asdict(self.config).items() if name not in WITHOUT_EFFECT},
            "images_per_step": self.images_per_step,
            "steps": self.total_steps,
        }

    def _weights(self) -> nn.Module:
        """Return the detector."""
        return self.detector

    def _state(self) -> dict[str, Any]:
        """Return everything that a run continues from."""
        return {
            "step": self.step,
            "last_loss": self.last_loss,
            "model": self.detector.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": self._random_state(self.device),
        }

    def _save(self) -> None:
        """Write a checkpoint."""
        self._keep()

    def _set_state(self, saved: Mapping[str, Any]) -> None:
        """Load the content of a checkpoint."""
        self._set_step(saved)
        self.detector.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self._set_random_state(saved["rng"], self.device)
