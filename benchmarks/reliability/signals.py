"""Signals: Ctrl-C and SIGTERM at any moment of a real command, from its start on, and helpers whose parent is killed.

A command that is stopped must end with code 130 or 143 and one line, never with a traceback. Before its first line of
Python runs, a signal kills it as it kills any process, which is no defect; when all is done, it ends with code 0.
Helpers must end within two seconds.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from benchmarks.common.places import ROOT
from benchmarks.reliability.cases import Case, Outcome, Part
from benchmarks.reliability.damaged import template
from benchmarks.reliability.jobs import JOBS
from cafenet.common.run_places import REPORT

TIMES, HELPERS = 12, 3
"""Stops by each signal, and kills of a search with helpers."""
LIMIT_S, HELPERS_S = 60.0, 2.0
STOPPED, BEFORE, ENDED, GONE = "one line, exit 130 or 143", "before Python ran", "had ended", "helpers gone within 2 s"
TRACEBACK, SILENT, STAYED = "traceback", "another end", "helpers stayed"


def cases(shared: Path) -> Iterable[Case]:
    """Stops spread over the whole command, then kills with helpers."""
    for number in (signal.SIGINT, signal.SIGTERM):
        for time_number in range(TIMES):
            yield Case(
                f"{number.name} {time_number}", _stop(number, time_number, shared), f"{number.name} of `cafenet run`"
            )
    for number in range(HELPERS):
        yield Case(f"helpers {number}", _kill(number, shared), "`kill -9` of a search with a helper")


def _command(shared: Path, place: Path, *flags: str) -> "subprocess.Popen[str]":
    template(JOBS["run"], "finished", shared)
    recipe = shared / "run" / "tiny.yaml"
    arguments = [sys.executable, "-m", "cafenet", "run", str(recipe), "--output", str(place / "out"), "--quiet", *flags]
    with (place / "stderr.txt").open("w") as said:
        return subprocess.Popen(
            arguments,
            cwd=place,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.DEVNULL,
            stderr=said,
            text=True,
            start_new_session=True,
        )


def _stop(number: signal.Signals, time_number: int, shared: Path) -> Callable[[Path], Outcome]:
    """A stop after a time that grows from one case to the next, with some chance."""

    def check(place: Path) -> Outcome:
        delay = (time_number + random.Random(f"{number.name} {time_number}").random()) / TIMES * _usual_seconds(shared)
        process = _command(shared, place)
        with suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        if process.returncode is not None:
            return Outcome(ENDED)
        was_done = (place / "out" / REPORT).exists()
        process.send_signal(number)
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return Outcome(SILENT, f"after {delay:.1f} s: it went on for {LIMIT_S:.0f} s")
        said = (place / "stderr.txt").read_text()
        return judged(code, said, delay, was_done)

    return check


def judged(code: int, said: str, delay: float, was_done: bool = False) -> Outcome:
    """Outcome of a stop; after the last file was written, the command may also just end."""
    if "Traceback" in said:
        return Outcome(TRACEBACK, f"after {delay:.1f} s: exit {code}: {said.strip().splitlines()[-1]}")
    if code in (130, 143) and len(said.strip().splitlines()) == 1:
        return Outcome(STOPPED)
    if code == 0 and not said and was_done:
        return Outcome(ENDED)
    if code < 0 and not said and delay < 0.2:  # the interpreter was not there yet
        return Outcome(BEFORE)
    return Outcome(SILENT, f"after {delay:.1f} s: exit {code}: {said.strip() or 'nothing was said'}")


def _usual_seconds(shared: Path) -> float:
    """Seconds that the command takes, measured once."""
    note = shared / "seconds"
    if not note.exists():
        place = shared / "timed"
        place.mkdir(exist_ok=True)
        start = time.monotonic()
        _command(shared, place).wait(5 * LIMIT_S)
        note.write_text(str(time.monotonic() - start))
    return float(note.read_text())


def _kill(number: int, shared: Path) -> Callable[[Path], Outcome]:
    def check(place: Path) -> Outcome:
        flags = ["--search_workers=2", "--evolution.iterations=200"]
        process = _command(shared, place, *flags)
        try:
            until = time.monotonic() + LIMIT_S
            while not _helpers(process.pid) and process.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(random.Random(f"helpers {number}").uniform(0, 4))
            if process.poll() is not None:
                return Outcome(ENDED)
            process.kill()
            process.wait()
            time.sleep(HELPERS_S)
            left = _helpers(process.pid)
            return Outcome(STAYED, f"{len(left)} after {HELPERS_S:.0f} s") if left else Outcome(GONE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    return check


def _helpers(session: int) -> list[int]:
    """Processes of a session that are not its first one and have not ended."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and int(path.name) != session:
            with suppress(OSError, IndexError):
                state, _, _, of_session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(of_session) == session and state != "Z" and b"spawn_main" in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
    return found


PART = Part("signals", "Stopped", cases, (STOPPED, BEFORE, ENDED, GONE), (TRACEBACK, SILENT, STAYED))
