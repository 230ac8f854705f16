"""Wrong inputs: calls and command lines that cannot work must end in one clear line, and soon.

A call must raise one of CafeNet's own errors, or, where the user's own code raised, that error. A command line must end
with exit code 2 and a line that begins with "error:" (or argparse's usage and line).
"""

import re
import shlex
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.reliability import children
from benchmarks.reliability.cases import Case, Outcome, Part
from benchmarks.reliability.damaged import template
from benchmarks.reliability.jobs import JOBS
from benchmarks.reliability.wrong_calls import CALLS, UsersMistake
from benchmarks.reliability.wrong_commands import COMMANDS, FILES
from benchmarks.reliability.wrong_loops import LOOPS
from benchmarks.reliability.wrong_slims import write
from cafenet.cli.main import main
from cafenet.errors import CafeNetError

LIMIT_S = 60.0
"""Nothing here takes more than some seconds to refuse on a quiet machine; this is for one that does much else."""
CLEAR, USERS = "clear line", "the user's own traceback"
TRACEBACK, ACCEPTED, SLOW = "traceback", "accepted silently", f"longer than {LIMIT_S:.0f} s"
LATE = "after long work"


def cases(shared: Path) -> Iterable[Case]:
    """All calls, then all command lines."""
    for group, table in (*CALLS.items(), *LOOPS.items()):
        for name, call, values in table:
            for number, value in enumerate(values):
                yield Case(f"{name}, {_shown(value, number)}", _call(call, value), f"calls: {group}")
    for group, lines in COMMANDS.items():
        for line in lines:
            yield Case(f"cafenet {_short(line)}", _command(line, shared), f"command lines: {group}")


def _call(call: Callable[[Any], Any], value: Any) -> Callable[[Path], Outcome]:
    return lambda place: tried(call, value, place)


def tried(call: Callable[[Any], Any], value: Any, place: Path) -> Outcome:
    """Make a wrong call in a child and say what came out."""
    ended = children.run(lambda: _caught(call, value), place / "words", place / "cwd", LIMIT_S)
    if ended.code is None:
        return Outcome(SLOW, "no answer")
    if ended.code != 0 or ended.value is None:
        return Outcome(TRACEBACK, f"exit {ended.code}: {ended.last_line}")
    kind, detail = ended.value
    return Outcome(kind, detail)


def _caught(call: Callable[[Any], Any], value: Any) -> list[str]:
    try:
        call(value)
    except CafeNetError as error:
        return [CLEAR, str(error)]
    except UsersMistake as error:
        return [USERS, str(error)]
    except BaseException as error:
        is_users = "UsersMistake" in str(error)  # out of a data loader's worker it comes as text
        return [USERS if is_users else TRACEBACK, f"{type(error).__name__}: {error}"]
    return [ACCEPTED, "no error"]


def _command(line: str, shared: Path) -> Callable[[Path], Outcome]:
    return lambda place: typed(line, place, shared)


def typed(line: str, place: Path, shared: Path) -> Outcome:
    """Type a wrong command line and say what came out."""
    files = place / "files"
    files.mkdir()
    for name, content in FILES.items():
        (files / name).write_bytes(content)
    run = place / "run"
    if "{run}" in line:
        shutil.copytree(template(JOBS["run"], "finished", shared), run)
    if "{slim}" in line:
        write(place / "slim")
    sources = {"place": _source("run", shared), "detect": _source("detect", shared), "files": files, "run": run}
    sources["slim"] = place / "slim"
    for name, path in sources.items():
        line = line.replace(f"{{{name}}}", str(path))
    ended = children.run(lambda: main(shlex.split(line)), place / "words", place / "cwd", LIMIT_S)
    if ended.code is None:
        return Outcome(SLOW, "no end")
    if ended.has_traceback or ended.code not in (0, 2):
        return Outcome(TRACEBACK, f"exit {ended.code}: {ended.last_line}")
    if ended.code == 0:
        return Outcome(ACCEPTED, "exit 0")
    if any((place / "cwd").rglob("supernet.pt")):
        return Outcome(LATE, f"after a training: {ended.last_line}")
    said = [text for text in ended.said.splitlines() if "error: " in text]
    return Outcome(CLEAR) if len(said) == 1 else Outcome(TRACEBACK, f"exit 2 without one line: {ended.said}")


def _source(job: str, shared: Path) -> Path:
    template(JOBS[job], "finished", shared)
    return shared / job


def _shown(value: Any, number: int) -> str:
    """A value in a case's name; what has no short one of its own gets its number."""
    text = " ".join(repr(value).split())
    is_plain = len(text) <= 60 and not re.search(r" at 0x|\(0\): |tensor\(", text)
    return text if is_plain else f"{type(value).__name__} {number}"


def _short(line: str) -> str:
    return line if len(line) <= 160 else f"{line[:120]}... ({len(line)} characters)"


PART = Part("inputs", "Wrong inputs", cases, (CLEAR, USERS), (TRACEBACK, ACCEPTED, SLOW, LATE))
