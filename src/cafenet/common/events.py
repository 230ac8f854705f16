"""Events of a search, for loggers: a stage begins, a step or a trial is done, a result is there.

A logger is any object with the five methods of `EventLogger`. Those that are given to a search get the events of all
that happens inside `logging_to`; one that fails gets no more events, with one warning, and the work goes on.
"""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from cafenet.errors import CafeNetWarning, TrainingError, first_line


class EventLogger(Protocol):
    """Receives the events of a search. Values are numbers by name.

    Example:
        >>> class Printing:
        ...     def stage(self, name, total): print(f"{name} has {total} steps")
        ...     def step(self, stage, number, values): print(f"{stage} {number}: {values['loss']}")
        ...     def trial(self, stage, number, values): pass
        ...     def result(self, name, values): pass
        ...     def close(self): print("done")
        >>> from cafenet.common.events import current_loggers, logging_to
        >>> with logging_to([Printing()]):
        ...     current_loggers().stage("supernet", 2)
        ...     current_loggers().step("supernet", 1, {"loss": 0.5})
        supernet has 2 steps
        supernet 1: 0.5
        done
    """

    def stage(self, name: str, total: int) -> None:
        """Begin a training or a search.

        Args:
            name: Its name, such as "stage-1" or "search 50%".
            total: Number of its steps or trials.
        """

    def step(self, stage: str, number: int, values: Mapping[str, float]) -> None:
        """Note a step of a training.

        Args:
            stage: Name of the training.
            number: Number of the step, from 1.
            values: The loss, the learning rate and so on.
        """

    def trial(self, stage: str, number: int, values: Mapping[str, float]) -> None:
        """Note a scored width.

        Args:
            stage: Name of the search.
            number: Number of the trial, from 1.
            values: The score, and the best score so far.
        """

    def result(self, name: str, values: Mapping[str, float]) -> None:
        """Note the result of a budget.

        Args:
            name: The budget.
            values: Score and costs.
        """

    def close(self) -> None:
        """End the log."""


_METHODS = ("stage", "step", "trial", "result", "close")


class Loggers:
    """Several loggers as one, none of which can stop the work."""

    def __init__(self, loggers: Sequence[EventLogger] = ()) -> None:
        """Hold the loggers.

        Args:
            loggers: The loggers, in the order in which they get events.
        """
        self._loggers = list(loggers)

    def stage(self, name: str, total: int) -> None:
        """Tell that a stage begins.

        Args:
            name: Name of the stage.
            total: Number of its steps or trials.
        """
        self._tell("stage", name, total)

    def step(self, stage: str, number: int, values: Mapping[str, Any]) -> None:
        """Tell of a step.

        Args:
            stage: Name of the stage.
            number: Number of the step.
            values: Values by name, of which the numbers are passed on.
        """
        self._tell("step", stage, number, _numbers(values))

    def trial(self, stage: str, number: int, values: Mapping[str, Any]) -> None:
        """Tell of a trial.

        Args:
            stage: Name of the stage.
            number: Number of the trial.
            values: Values by name, of which the numbers are passed on.
        """
        self._tell("trial", stage, number, _numbers(values))

    def result(self, name: str, values: Mapping[str, Any]) -> None:
        """Tell of a result.

        Args:
            name: The budget.
            values: Values by name, of which the numbers are passed on.
        """
        self._tell("result", name, _numbers(values))

    def close(self) -> None:
        """End all logs."""
        self._tell("close")

    def _tell(self, event: str, *values: Any) -> None:
        """Pass an event on; a logger that fails is left out from then on."""
        for logger in list(self._loggers):
            try:
                getattr(logger, event)(*values)
            except Exception as error:
                self._loggers.remove(logger)
                warnings.warn(
                    f"the logger {type(logger).__name__} failed at `{event}` and gets no more events, the work goes "
                    f"on: {type(error).__name__}: {first_line(error)}",
                    CafeNetWarning,
                    stacklevel=4,
                )


_CURRENT: ContextVar[Loggers | None] = ContextVar("loggers", default=None)


def current_loggers() -> Loggers:
    """Return the loggers of the work that is going on; by default there are none.

    Returns:
        The loggers as one.
    """
    return _CURRENT.get() or Loggers()


@contextmanager
def logging_to(loggers: Sequence[EventLogger]) -> Iterator[None]:
    """Send the events inside the block to loggers, and close them after it.

    In a training of several processes, only the first one sends events.

    Args:
        loggers: The loggers. An empty list leaves those of an outer block in place.

    Raises:
        TrainingError: If an object lacks a method of a logger.
    """
    for logger in loggers:
        missing = [name for name in _METHODS if not callable(getattr(logger, name, None))]
        if missing or isinstance(logger, type):
            raise TrainingError(
                f"a logger must have the methods {', '.join(_METHODS)}, but {logger!r:.60} "
                + (f"has no {missing[0]}" if missing else "is a class; write it with ()")
            )
    if not loggers or os.environ.get("RANK", "0") != "0":
        yield
        return
    all_of_them = Loggers(loggers)
    token = _CURRENT.set(all_of_them)
    try:
        yield
    finally:
        _CURRENT.reset(token)
        all_of_them.close()


@contextmanager
def logging_nothing() -> Iterator[None]:
    """Keep the events inside the block from all loggers, for work that is only a measurement."""
    token = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if isinstance(value, (int, float))}
