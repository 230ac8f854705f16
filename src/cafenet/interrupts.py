"""Ctrl-C and SIGTERM during long work: finish the step, save, then stop."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def outlive_first_stop(worker: int = 0) -> None:
    """For a data loader's workers: a SIGTERM to all processes of a job is the training's to handle; a second one ends.

    A worker that died of the first would break the step that is to be finished.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: signal.signal(number, signal.SIG_DFL))


@contextmanager
def graceful_stop() -> Iterator[list[str]]:
    """Turn Ctrl-C and SIGTERM into a note that the loop reads after the step; a second Ctrl-C is the usual one."""
    stopped: list[str] = []

    def note(number: int, frame: FrameType | None) -> None:
        if stopped:
            raise KeyboardInterrupt
        stopped.append(signal.Signals(number).name)

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are not ours to handle
        before = {}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
