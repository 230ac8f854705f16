"""A piece of work in a forked process of its own: with a time limit, its words kept, and how it ended.

Everything that a piece needs is imported before the fork, so that a child starts within milliseconds. What a child does
to its memory, its working directory or its signals stays its own.
"""

import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SAID, PRINTED, VALUE = "stderr.txt", "stdout.txt", "value.json"
MOST_WORDS = 20_000
MOST_BYTES = 8 * 2**30
"""Address space of a child, so that none of them can take the machine's memory."""


@dataclass(frozen=True)
class Ended:
    """The end of a child process."""

    code: int | None
    """The exit code, minus the number of the signal that killed it, or None if it was ended at its time limit."""
    said: str
    """Text that it wrote to stderr."""
    printed: str
    """Text that it wrote to stdout."""
    value: Any
    """Value that its function returned, through JSON; None if it returned nothing."""
    seconds: float
    peak_mb: float
    """Largest resident memory, with what the parent had in memory already."""

    @property
    def has_traceback(self) -> bool:
        """Whether a traceback was shown."""
        return "Traceback (most recent call last)" in self.said

    @property
    def last_line(self) -> str:
        """The last line on stderr, which says why."""
        lines = [line for line in self.said.strip().splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""


@dataclass
class Child:
    """A child that runs."""

    pid: int
    words: Path
    started: float

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the child alone, as `kill -9 PID` does."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, limit_s: float) -> Ended | None:
        """Wait for the child's end; None if it still runs after that time."""
        until = time.monotonic() + limit_s
        while True:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                return self._ended(os.waitstatus_to_exitcode(status), usage.ru_maxrss / 1024)
            if time.monotonic() >= until:
                return None
            time.sleep(0.002)

    def end(self) -> Ended:
        """End it and whatever it has started; its code is None."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        _, _, usage = os.wait4(self.pid, 0)
        return self._ended(None, usage.ru_maxrss / 1024)

    def _ended(self, code: int | None, peak_mb: float) -> Ended:
        value = self.words / VALUE
        return Ended(
            code=code,
            said=_words(self.words / SAID),
            printed=_words(self.words / PRINTED),
            value=json.loads(value.read_text()) if value.exists() else None,
            seconds=round(time.monotonic() - self.started, 3),
            peak_mb=round(peak_mb),
        )


def start(function: Callable[[], Any], words: Path, cwd: Path) -> Child:
    """Start a function in a child of its own process group; an int that it returns is its exit code.

    Args:
        function: The work. An exception that it raises shows its traceback and ends the child with code 1.
        words: Directory for what the child writes to stdout and stderr, and for what its function returns.
        cwd: Directory that the child works in.
    """
    words.mkdir(parents=True, exist_ok=True)
    cwd.mkdir(parents=True, exist_ok=True)
    for name in (SAID, PRINTED, VALUE):
        (words / name).unlink(missing_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    started = time.monotonic()
    pid = os.fork()
    if pid:
        return Child(pid, words, started)
    code = 1
    try:  # nothing of the parent may run in the child after this block
        code = _work(function, words, cwd)
    finally:
        os._exit(code)


def run(function: Callable[[], Any], words: Path, cwd: Path, limit_s: float) -> Ended:
    """Run a function in a child until it ends or its time is over."""
    child = start(function, words, cwd)
    return child.wait(limit_s) or child.end()


def _work(function: Callable[[], Any], words: Path, cwd: Path) -> int:
    os.setsid()
    os.chdir(cwd)
    _redirect(words)
    try:
        result = function()
        code = result if isinstance(result, int) and not isinstance(result, bool) else 0
        if result is not None and not code:
            (words / VALUE).write_text(json.dumps(result))
    except SystemExit as end:
        code = _exit_code(end)
    except BaseException:
        traceback.print_exc()
        code = 1
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def _redirect(words: Path) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, name in ((1, PRINTED), (2, SAID)):
        os.dup2(os.open(words / name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644), descriptor)
    sys.stdout = os.fdopen(1, "w", buffering=1, errors="replace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="replace", closefd=False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


def _exit_code(end: SystemExit) -> int:
    if isinstance(end.code, int):
        return end.code
    if end.code is None:
        return 0
    print(end.code, file=sys.stderr)
    return 1


def _words(path: Path) -> str:
    return path.read_bytes()[-MOST_WORDS:].decode(errors="replace") if path.exists() else ""


PRELOADED = (
    "torch._dynamo",
    "cafenet.cli.main",
    "cafenet.cli.table",
    "cafenet.detection.report_page",
    "cafenet.detection.run_recipe",
    "cafenet.report.comparison_page",
    "cafenet.report.run_page",
    "cafenet.searching.store.trials",
    "docstring_parser",
    "onnxruntime",
    "onnxscript",
    "pycocotools.cocoeval",
    "rich.progress",
    "scipy.optimize",
    "torch.onnx",
)


def preload() -> None:
    """Import what jobs import on their way, so that children need not."""
    import torch

    from cafenet.common.torchvision_compat import import_torchvision

    torch.set_num_threads(1)
    import_torchvision()
    for name in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(name)
