"""Ctrl-C and SIGTERM during long work: finish the step, save, then stop."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
