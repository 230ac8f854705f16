"""Remaining time of a job of several parts: a plan estimates each part, and the finished parts correct it.

Smallest example: three parts are planned with 100 s, 200 s and 300 s. The first took 200 s, about twice as long. When
the second begins, about 2 x (200 + 300) = 1000 s are left.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_AT_ONCE = 0.05
"""Share of the planned time below which a part was done by an earlier start, and says nothing about the speed."""
_TRUST = 3.0
"""Seconds of planned work that count as done at the planned speed, so that a short part does not say too much."""


class WholeJob:
    """The parts of a job in their order, with the time that each is planned to take.

    Args:
        planned: Seconds of each part; None if that is not known.
    """

    def __init__(self, planned: Sequence[float | None]) -> None:
        self._planned, self._number = tuple(planned), 0
        self._begun = time.monotonic()
        self._expected = self._taken = _TRUST

    def begin(self) -> None:
        """Begin the next part."""
        self._number, self._begun = self._number + 1, time.monotonic()

    def end(self) -> None:
        """End the part, whose time corrects the plan of the others."""
        planned, taken = self._own(), time.monotonic() - self._begun
        if planned and taken > _AT_ONCE * planned:
            self._expected, self._taken = self._expected + planned, self._taken + taken

    def note(self, seconds_left: float) -> str:
        """Return where the job is, in words.

        Args:
            seconds_left: Seconds that the current part still takes, judging by itself.

        Returns:
            "part 2 of 4, about 3.1 min left in all"; without the time if the plan has none.
        """
        where = f"part {min(self._number, len(self._planned))} of {len(self._planned)}"
        left = self.seconds_left(seconds_left)
        return where if left is None else f"{where}, about {duration(left)} left in all"

    def seconds_left(self, of_part: float) -> float | None:
        """Return the seconds that the whole job still takes.

        Args:
            of_part: Seconds that the current part still takes, judging by itself.

        Returns:
            The seconds, or None if the time of some part is not known.
        """
        later = [seconds for seconds in self._planned[self._number :] if seconds is not None]
        if len(later) < len(self._planned[self._number :]) or of_part == float("inf"):
            return None
        return of_part + self._taken / self._expected * sum(later)

    def _own(self) -> float | None:
        """Return the seconds that the current part was planned to take."""
        return self._planned[self._number - 1] if 0 < self._number <= len(self._planned) else None


_CURRENT: ContextVar[WholeJob | None] = ContextVar("whole_job", default=None)


@contextmanager
def whole_job(planned: Sequence[float | None]) -> Iterator[None]:
    """Make all progress inside say what is left of the whole job.

    Args:
        planned: Seconds of each part in order; None if that is not known.

    Yields:
        Nothing.
    """
    token = _CURRENT.set(WholeJob(planned) if planned else None)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def next_part() -> Iterator[None]:
    """Do the next part of the whole job inside, if there is a whole job.

    Yields:
        Nothing.
    """
    job = _CURRENT.get()
    if job is not None:
        job.begin()
    yield
    if job is not None:
        job.end()


def left_in_all(seconds_left: float) -> str:
    """Return where the whole job is, in words.

    Args:
        seconds_left: Seconds that the current part still takes.

    Returns:
        The words, or an empty text if the work is no part of a larger job.
    """
    job = _CURRENT.get()
    return "" if job is None else job.note(seconds_left)


def duration(seconds: float) -> str:
    """Return a time in words: 90 is "1.5 min".

    Args:
        seconds: The time.

    Returns:
        The text.
    """
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(seconds, 1.0):.0f} s"
