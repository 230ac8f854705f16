"""Ctrl-C and SIGTERM: long work finishes its step, saves and stops; a command prints one line and sets an exit code."""

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from multiprocessing import parent_process
from pathlib import Path
from types import FrameType

from cafenet.common.parent_process import end_with_parent

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
KEPT = "what is done is kept; the same command continues"


class Stopped(KeyboardInterrupt):
    """A stop by a signal, which decides the exit code of a command: 130 for Ctrl-C, 143 for SIGTERM.

    Args:
        message: Text for the user.
        signal_name: Name of the signal, for example `"SIGTERM"`. Any other text counts as Ctrl-C.
    """

    def __init__(self, message: str = "", signal_name: str = "SIGINT") -> None:
        super().__init__(message)
        number = signal.Signals.__members__.get(signal_name, signal.SIGINT)
        self.exit_code = 128 + int(number)


def guard_command() -> None:
    """Lets a signal end the `cafenet` command at once, with one line, during its imports, which take seconds.

    An exception would be raised in the middle of some import. A program that only imports the package keeps its own
    signal handlers. When all is done and Python takes its modules down, a signal no longer changes the exit code.
    """
    if _is_command():
        _handle(_leave)
        atexit.register(_handle, signal.SIG_IGN)  # Python ends with the system's own handlers, which kill silently


@contextmanager
def stoppable_command() -> Iterator[None]:
    """Turn the first Ctrl-C or SIGTERM into a `Stopped`, and end at once at the second.

    The command also ends at once while it imports, which takes seconds: an exception would come out of the middle of
    some import, and not every library lets it through.
    """
    before = _handle(_raise_once(leaves_imports=_is_command()))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_command() -> bool:
    """Whether `python -m cafenet` or the script `cafenet` was started; a helper process of the command does not
    count.
    """
    if parent_process() is not None:
        return False
    arguments = getattr(sys, "orig_argv", [])
    is_module = any(pair == ("-m", "cafenet") for pair in pairwise(arguments))
    is_script = bool(sys.argv) and Path(sys.argv[0]).name in ("cafenet", "cafenet.exe", "cafenet-script.py")
    return is_module or is_script


def _handle(
    handler: Callable[[int, FrameType | None], None] | signal.Handlers,
) -> dict[signal.Signals, signal.Handlers]:
    """Sets a handler for the signals that are not ignored (`nohup` ignores some), and returns the handlers before."""
    before = {}
    with suppress(ValueError):  # only the main thread may handle signals
        for number in SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, handler)
    return before  # type: ignore[return-value]  # may hold Python functions as well


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, f"stopped: {KEPT}\n".encode())
    os._exit(128 + number)


def _raise_once(leaves_imports: bool) -> Callable[[int, FrameType | None], None]:
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped or (leaves_imports and _is_importing(frame)):
            _leave(number, frame)
        stopped.append(number)
        raise Stopped("", signal.Signals(number).name)

    return stop


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a frame is part of an import."""
    while frame is not None and frame.f_code.co_filename != _IMPORT_SYSTEM:
        frame = frame.f_back
    return frame is not None


def worker_start() -> Callable[[int], None]:
    """Creates the first call of a data loader's workers: they survive the first SIGTERM, and end with this process.

    Returns:
        A function of the worker's number, for `worker_init_fn` of a DataLoader.
    """
    return partial(_start_worker, os.getpid())


def _start_worker(parent: int, worker: int) -> None:
    """Leaves the first SIGTERM to the training, which handles it for all processes of a job; a second one ends the
    worker.

    A worker that ended at the first SIGTERM would break the step that the training is to finish.
    """
    end_with_parent(parent)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.signal(number, signal.SIG_DFL))


@contextmanager
def graceful_stop() -> Iterator[list[str]]:
    """Turns Ctrl-C and SIGTERM into a note that a loop reads after each step. A second signal raises `Stopped` at
    once.

    Yields:
        A list that holds the name of the signal as soon as one has arrived.
    """
    stopped: list[str] = []

    def note(number: int, frame: FrameType | None) -> None:
        if stopped:
            raise Stopped("", signal.Signals(number).name)
        stopped.append(signal.Signals(number).name)

    try:
        before = {number: signal.signal(number, note) for number in SIGNALS}
    except ValueError:  # only the main thread may handle signals
        before = {}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
