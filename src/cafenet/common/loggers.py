"""Loggers by name: `jsonl:FILE`, `tensorboard:DIRECTORY`, `mlflow:DIRECTORY` and `wandb:DIRECTORY`."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cafenet.common.events import EventLogger
from cafenet.errors import TrainingError, first_line


def loggers_of(asked: Sequence["str | EventLogger"]) -> list[EventLogger]:
    """Make the loggers that are asked for by name; what has to be installed is imported now.

    Args:
        asked: Names such as "mlflow:runs/mlflow", or loggers, which are returned as they are.

    Returns:
        The loggers.

    Raises:
        TrainingError: If a name is unknown, or what it needs is not installed.
    """
    if isinstance(asked, str):
        raise TrainingError(f"loggers must be a list, but is the text {asked!r}; write [{asked!r}]")
    if not isinstance(asked, Sequence):
        raise TrainingError(f"loggers must be a list, but is {asked!r}")
    return [_by_name(each) if isinstance(each, str) else each for each in asked]


def logger_name(text: str) -> str:
    """Return the name of a logger as it is, if it is one; nothing is imported.

    Args:
        text: A name such as "mlflow:runs/mlflow".

    Returns:
        The name.

    Raises:
        TrainingError: If it is not the name of a logger.
    """
    kind, _, place = text.partition(":")
    if kind not in _KINDS or not place:
        raise TrainingError(f"a logger must be one of {', '.join(f'{name}:PATH' for name in _KINDS)}, but is {text!r}")
    return text


def _by_name(text: str) -> EventLogger:
    kind, _, place = logger_name(text).partition(":")
    try:
        logger: EventLogger = _KINDS[kind](Path(place))
    except (OSError, ValueError) as error:  # the latter for a path that no system has
        reason = (error.strerror if isinstance(error, OSError) else None) or first_line(error)
        raise TrainingError(f"the logger {text[:200]!r} must name a place that can be written to: {reason}") from error
    return logger


class _JsonLinesLogger:
    """Writes each event as a line of JSON, at the end of a file."""

    def __init__(self, path: Path) -> None:
        """Open the file.

        Args:
            path: The file; its directory is created.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a")

    def stage(self, name: str, total: int) -> None:
        """Write that a stage begins."""
        self._write(event="stage", stage=name, total=total)

    def step(self, stage: str, number: int, values: Mapping[str, float]) -> None:
        """Write a step."""
        self._write(event="step", stage=stage, number=number, **values)

    def trial(self, stage: str, number: int, values: Mapping[str, float]) -> None:
        """Write a trial."""
        self._write(event="trial", stage=stage, number=number, **values)

    def result(self, name: str, values: Mapping[str, float]) -> None:
        """Write a result."""
        self._write(event="result", budget=name, **values)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, **values: Any) -> None:
        self._file.write(json.dumps(values) + "\n")
        self._file.flush()


class _TensorBoardLogger:
    """Writes scalars for TensorBoard, such as `stage-1/loss`."""

    def __init__(self, directory: Path) -> None:
        """Open a log.

        Args:
            directory: Directory of the log.

        Raises:
            TrainingError: If TensorBoard is not installed.
        """
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise TrainingError(
                "tensorboard must be installed, but is not; run: pip install 'cafenet[board]'"
            ) from error
        self._writer: Any = SummaryWriter(str(directory))

    def stage(self, name: str, total: int) -> None:
        """Note the length of a stage."""
        self._writer.add_scalar(f"{name}/total", total, 0)

    def step(self, stage: str, number: int, values: Mapping[str, float]) -> None:
        """Write the values of a step."""
        for name, value in values.items():
            self._writer.add_scalar(f"{stage}/{name}", value, number)

    trial = step

    def result(self, name: str, values: Mapping[str, float]) -> None:
        """Write the values of a result."""
        self.step(f"result {name}", 0, values)

    def close(self) -> None:
        """Close the log."""
        self._writer.close()


class _MlflowLogger:
    """Writes a run of the experiment `cafenet` into a database of MLflow in a directory."""

    def __init__(self, directory: Path) -> None:
        """Begin a run.

        Args:
            directory: Directory of `mlflow.db`; look at it with `mlflow ui --backend-store-uri sqlite:///DIR/mlflow.db`.

        Raises:
            TrainingError: If MLflow is not installed.
        """
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise TrainingError("mlflow must be installed, but is not; run: pip install 'cafenet[mlflow]'") from error
        directory.mkdir(parents=True, exist_ok=True)
        self._client: Any = MlflowClient(tracking_uri=f"sqlite:///{directory.absolute() / 'mlflow.db'}")
        experiment = self._client.get_experiment_by_name("cafenet")
        number = self._client.create_experiment("cafenet") if experiment is None else experiment.experiment_id
        self._run: str = self._client.create_run(number).info.run_id

    def stage(self, name: str, total: int) -> None:
        """Note the length of a stage."""
        self._client.log_metric(self._run, _metric(f"{name}/total"), total)

    def step(self, stage: str, number: int, values: Mapping[str, float]) -> None:
        """Write the values of a step."""
        for name, value in values.items():
            self._client.log_metric(self._run, _metric(f"{stage}/{name}"), value, step=number)

    trial = step

    def result(self, name: str, values: Mapping[str, float]) -> None:
        """Write the values of a result."""
        self.step(f"result {name}", 0, values)

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._run)


def _metric(name: str) -> str:
    """Return a name that MLflow takes: "search 50%/score" becomes "search 50 percent/score"."""
    return re.sub(r"[^\w\-./: ]", "_", name.replace("%", " percent"))


class _WandbLogger:
    """Writes a run of the project `cafenet` for Weights & Biases; offline unless the user has set WANDB_MODE."""

    def __init__(self, directory: Path) -> None:
        """Begin a run.

        Args:
            directory: Directory of `wandb/offline-run-*`; `wandb sync` sends such a run.

        Raises:
            TrainingError: If wandb is not installed, or does not start.
        """
        try:
            from wandb import Settings, init
        except ImportError as error:
            raise TrainingError("wandb must be installed, but is not; run: pip install 'cafenet[wandb]'") from error
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK):  # wandb would write to /tmp
            raise TrainingError(f"the directory of a logger must be writable, but {directory} is not")
        # a run beside one that the user may have begun, without what is printed and without their code
        own = Settings(silent=True, console="off", save_code=False, reinit="create_new")
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        try:
            self._run: Any = init(project="cafenet", dir=str(directory), mode=mode, settings=own)
        except Exception as error:
            raise TrainingError(f"wandb must start, but says: {first_line(error)}") from error
        self._stages: set[str] = set()

    def stage(self, name: str, total: int) -> None:
        """Note the length of a stage."""
        self._run.summary[f"{name}/total"] = total

    def step(self, stage: str, number: int, values: Mapping[str, float]) -> None:
        """Write the values of a step, drawn over the number of the step in its stage."""
        if stage not in self._stages:
            self._stages.add(stage)
            self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/number")
        self._run.log({f"{stage}/{name}": value for name, value in {"number": number, **values}.items()})

    trial = step

    def result(self, name: str, values: Mapping[str, float]) -> None:
        """Write the values of a result."""
        for each, value in values.items():
            self._run.summary[f"result {name}/{each}"] = value

    def close(self) -> None:
        """End the run."""
        self._run.finish()


_KINDS: Mapping[str, Any] = {
    "jsonl": _JsonLinesLogger,
    "tensorboard": _TensorBoardLogger,
    "mlflow": _MlflowLogger,
    "wandb": _WandbLogger,
}
LOG_HELP = "where events go: jsonl:FILE, tensorboard:DIR, mlflow:DIR or wandb:DIR"
"""The help text of `--log`."""
