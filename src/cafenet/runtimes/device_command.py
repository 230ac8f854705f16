"""Devices elsewhere: a command or a function of the user gets an exported file and answers milliseconds.

Smallest example: `command:onnx ./measure.sh {file}` runs `./measure.sh /tmp/.../model.onnx`; the last line that it
prints, `1.83` or `1.83 ms`, is the latency.
"""

import math
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cafenet.errors import DeploymentError, first_line
from cafenet.runtimes.file_formats import FILE_FORMATS, format_of_ending

PREFIX = "command:"
"""Beginning of a runtime that is a command."""
FILE = "{file}"
"""The place of the exported file in a command."""
_LINE = re.compile(r"\s*([-+.\deE]+|nan|inf)\s*(?:ms)?\s*")


@dataclass(frozen=True)
class Device:
    """A command or a function that measures an exported file."""

    ask: Callable[[Path, float], Any]
    """Answers milliseconds for a file within a number of seconds."""
    name: str
    """The device in messages and in files of measurements."""
    file_format: str
    """Name of the format that it takes."""


def device_of(runtime: str | Callable[[Path], float]) -> Device:
    """Read a command or a function as a device.

    Args:
        runtime: `command:FORMAT PROGRAM ARGUMENTS` with `{file}` among the arguments, or a function that takes the path
            of a file. The format of a function's file is its attribute `file_format`, by default "onnx".

    Returns:
        The device.

    Raises:
        DeploymentError: If the command is not of that form.
    """
    if not isinstance(runtime, str):
        name = f"{getattr(runtime, '__module__', '')}.{getattr(runtime, '__qualname__', type(runtime).__qualname__)}"
        chosen = getattr(runtime, "file_format", "onnx")
        return Device(lambda file, seconds: runtime(file), name, _known(str(chosen), name))
    chosen, _, command = runtime.removeprefix(PREFIX).strip().partition(" ")
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that does not end
        words = []
    if not any(FILE in word for word in words):
        raise DeploymentError(
            f"a command must be written as 'command:FORMAT PROGRAM {FILE}', but is {runtime!r}; for example "
            f"'command:onnx ./measure.sh {FILE}'"
        )
    name = _known(chosen, runtime)
    return Device(lambda file, seconds: _output(words, file, seconds), runtime, name)


def _known(chosen: str, device: str) -> str:
    """Return the name of a format, which may be given by its ending."""
    name = format_of_ending(chosen)
    if name not in FILE_FORMATS:
        endings = ", ".join(each.ending.removeprefix(".") for each in FILE_FORMATS.values())
        raise DeploymentError(f"a device must ask for one of the files {endings}, but {device!r} asks for {chosen!r}")
    return name


def answer_ms(device: Device, file: Path, *, retries: int, timeout_seconds: float) -> float:
    """Ask a device for the latency of a file, and again if it does not answer well.

    Args:
        device: The device.
        file: The exported file.
        retries: Number of further questions after the first.
        timeout_seconds: Time limit of one question. Functions must keep it themselves.

    Returns:
        The latency in ms.

    Raises:
        DeploymentError: If no answer was a positive number.
    """
    problem = ""
    for _ in range(1 + retries):
        try:
            return _milliseconds(device.ask(file, timeout_seconds))
        except Exception as error:  # whatever goes wrong between here and a phone
            problem = first_line(error)
            last = error
    raise DeploymentError(
        f"{device.name} must answer with milliseconds, but {problem} ({1 + retries} times); see to the device and "
        "start again: answers so far are kept where latency.cache names a file"
    ) from last


def _milliseconds(answer: Any) -> float:
    """Return an answer as a number if it can be a latency."""
    match = _LINE.fullmatch(answer) if isinstance(answer, str) else None
    try:
        number = float(answer if match is None else match[1])
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"it answered {answer!r:.60}")
    return number


def _output(words: list[str], file: Path, seconds: float) -> str:
    """Run a command, end it with all that it started at its time limit, and return the last line that it printed."""
    command = [word.replace(FILE, str(file)) for word in words]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, errors = process.communicate(timeout=seconds)
        except BaseException as error:
            _end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeoutError(f"it gave no answer in {seconds:g} s") from None
            raise
    if process.returncode:
        last = ([*errors.strip().splitlines()] or [""])[-1]
        raise RuntimeError(f"it ended with code {process.returncode}" + (f": {last}" if last else ""))
    return ([line for line in printed.splitlines() if line.strip()] or [""])[-1]


def _end(process: "subprocess.Popen[str]") -> None:
    """End a process and those that it started."""
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
