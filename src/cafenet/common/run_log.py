"""Progress of a long run: a JSONL log, a progress line with the remaining time, and TensorBoard scalars on request."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cafenet.common.events import current_loggers
from cafenet.common.extras import install
from cafenet.common.files import write_text
from cafenet.common.job_progress import duration, left_in_all
from cafenet.common.read_files import gone, read_log
from cafenet.common.run_places import LOG
from cafenet.errors import TrainingError

if TYPE_CHECKING:
    from rich.progress import Progress

_PLAIN_EVERY_SECONDS = 30.0


class RunLog:
    """Writes one line per step or epoch to `log.jsonl`, and shows the progress.

    On a terminal it shows a bar. Otherwise it prints a plain line every 30 seconds.

    Args:
        directory: Directory of the log, or None for no log.
        total_steps: Number of the last step.
        title: Name of the work, in front of the progress.
        quiet: Whether to show no progress.
        tensorboard: Whether to write scalars for TensorBoard as well.

    Raises:
        TrainingError: If `tensorboard` is true and TensorBoard is not installed.
    """

    def __init__(
        self, directory: Path | None, total_steps: int, *, title: str, quiet: bool = False, tensorboard: bool = False
    ) -> None:
        self._path = None if directory is None else directory / LOG
        self._total, self._title, self._quiet = total_steps, title, quiet
        self._progress: Progress | None = None
        self._last_plain = self._start = time.monotonic()
        self._first_step = 0
        self._board = _summary_writer(directory) if tensorboard and directory is not None else None

    def start(self, step: int) -> None:
        """Begins at a step. Lines of the log after this step, which an interrupted run has left, are dropped.

        Args:
            step: Number of the steps that are done.
        """
        self._first_step = step
        current_loggers().stage(self._title, self._total)
        self._start = self._last_plain = time.monotonic()
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _drop_after(self._path, step)
        if step and not self._quiet and step < self._total:
            print(f"{self._title}: goes on after step {step:,} of {self._total:,}", file=sys.stderr, flush=True)
        self._progress = None if self._quiet else _progress_line()
        if self._progress is not None:
            self._progress.start()
            self._task = self._progress.add_task(self._title, total=self._total, completed=step, note="")

    def write(self, step: int, **values: Any) -> None:
        """Logs the values of a step.

        Args:
            step: Number of the step.
            **values: Values by name, which must be valid in JSON.

        Raises:
            RunFileError: If the directory was removed.
        """
        current_loggers().step(self._title, step, values)
        if self._path is not None:
            try:
                with self._path.open("a") as file:
                    file.write(json.dumps({"step": step, **values}) + "\n")
            except FileNotFoundError as error:
                raise gone(self._path.parent) from error
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, (int, float)):
                    self._board.add_scalar(name, value, step)

    def show(self, step: int, note: str) -> None:
        """Moves the bar, or prints a plain line if the last one is long enough ago.

        Args:
            step: Number of the steps that are done.
            note: Short text beside the progress, for example the loss.
        """
        left = self._seconds_left(step)
        whole = left_in_all(left)
        if self._progress is not None:
            self._progress.update(self._task, completed=step, note=f"{note}; {whole}" if whole else note)
            return
        now = time.monotonic()
        if self._quiet or (now - self._last_plain < _PLAIN_EVERY_SECONDS and step < self._total):
            return
        self._last_plain = now
        parts = [f"step {step}/{self._total}", note, *([f"{duration(left)} left"] if step < self._total else [])]
        text = f"{self._title}: {', '.join(parts)}{f'; {whole}' if whole else ''}"
        print(text, file=sys.stderr, flush=True)

    def _seconds_left(self, step: int) -> float:
        """Return the seconds to the last step, judging by the steps so far."""
        rate = (step - self._first_step) / max(time.monotonic() - self._start, 1e-9)
        return (self._total - step) / rate if rate > 0 else float("inf")

    def close(self) -> None:
        """Restores the terminal and closes the TensorBoard file."""
        if self._progress is not None:
            self._progress.stop()
        if self._board is not None:
            self._board.close()


def _progress_line() -> "Progress | None":
    """A bar with its times; None off a terminal."""
    from rich.console import Console  # rich takes long to import
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        return None
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def _drop_after(path: Path, step: int) -> None:
    """Keeps the complete lines up to a step; an incomplete last line is dropped too."""
    if not path.is_file():
        return
    kept = [line for line in read_log(path, ("step",)) if line["step"] <= step]
    write_text(path, "".join(json.dumps(line) + "\n" for line in kept))


def _summary_writer(directory: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise TrainingError(f"tensorboard must be installed, but is not; {install('board')}") from error
    return SummaryWriter(str(directory / "tensorboard"))
