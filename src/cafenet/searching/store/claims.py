"""Claims of widths: which process holds one, and whether it still works on it.

Clocks of hosts are never compared. On the same host the process table tells whether a claim's process lives. The claim
of another host carries a count that its worker raises now and then; whoever waits for it takes the time, by a clock of
its own, since the count last changed.

Smallest example: a worker of another host claims a width and dies. Others see its count stand still, and after
`stale_seconds` of their own clock one of them gives the claim up and scores the width itself.
"""

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STALE_SECONDS = 120.0
"""Seconds after which the claim of a worker on another host is given up, if its count does not change."""
STALE_SECONDS_OLD = 600.0
"""Limit for claims of earlier versions, which do not count."""
_LOOK_SECONDS = 1.0
BEATS_PER_STALENESS = 6
"""Number of times that a worker raises the count of its claim while a claim becomes stale."""


def claim_of_this_process() -> dict[str, Any]:
    """Returns plain values that identify this process, and this claim among all of its claims.

    Returns:
        The values, with an `id` that no other claim has.
    """
    pid = os.getpid()
    return {"id": uuid.uuid4().hex, "host": host_name(), "pid": pid, "birth": birth(pid), "time": time.time()}


def host_name() -> str:
    """Names the place whose process table this process sees: a machine since it was started, or one of its containers.

    Returns:
        The name of the host, with the id of its start and of the process table where the system tells them.
    """
    name = socket.gethostname()
    with suppress(OSError):
        started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        table = os.readlink("/proc/self/ns/pid").strip("pid:[]")
        return f"{name} {started[:13]} {table}"
    return name


def birth(pid: int) -> int | None:
    """Returns the start time of a process in clock ticks.

    Process numbers are reused, often at once in a container, and a killed process stays in the process table until its
    parent notices.

    Args:
        pid: Number of the process.

    Returns:
        The time, 0 if the system does not tell it, or None if the process has ended.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0 if _is_alive(pid) else None
    return None if state in ("Z", "X") else int(fields[18])


def _is_alive(pid: int) -> bool:
    """Returns whether a process with this number exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@dataclass
class ClaimWatch:
    """Finds out whose workers have ended, by this process's own clock."""

    stale_seconds: float
    """Seconds after which the claim of another host is given up, if its count stands still."""
    clock: Callable[[], float] = time.monotonic
    """Clock of this process."""
    _seen: dict[int, tuple[int, float, float]] = field(default_factory=dict)
    """The count of each claim, the time at which it was first seen to have it, and that of the last look."""

    def is_dead(self, trial: int, claim: Mapping[str, Any], count: Callable[[], int]) -> bool:
        """Returns whether the worker of a claim has ended, or seems to.

        Args:
            trial: Number of the claimed trial.
            claim: Values of the claim, as `claim_of_this_process` makes them.
            count: Function that reads the claim's count; it is called for claims of other hosts only.

        Returns:
            True if the claim is to be given up.
        """
        here = host_name() if "id" in claim else socket.gethostname()  # earlier versions wrote the name alone
        if claim.get("host") == here:
            born = birth(int(claim["pid"]))
            return born is None or (born != claim["birth"] and 0 not in (born, claim["birth"]))
        patience = self.stale_seconds if "id" in claim else max(self.stale_seconds, STALE_SECONDS_OLD)
        now = self.clock()
        seen = self._seen.get(trial)
        if seen is None or now - seen[2] >= min(_LOOK_SECONDS, patience / 4):
            found = count()
            since = now if seen is None or seen[0] != found else seen[1]
            seen = self._seen[trial] = (found, since, now)
        return now - seen[1] > patience

    def forget(self, trial: int) -> None:
        """Forgets a claim that has ended.

        Args:
            trial: Number of the claimed trial.
        """
        self._seen.pop(trial, None)
