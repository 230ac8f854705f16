"""Kills: `kill -9` at random moments of a job that is started again until it ends, which must be equal to the last bit.

A series is one case: a number of kills, each after a time that is drawn evenly over the time that the whole job takes.
A job that ends before its kill is compared and begun anew in another directory, so a series has all its kills.
"""

import functools
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.reliability import children
from benchmarks.reliability.cases import Case, Outcome, Part
from benchmarks.reliability.children import Ended
from benchmarks.reliability.jobs import JOBS, Job, differing, results_of

SERIES, KILLS = 10, 5
"""Series of each job, and kills in each of them: 10 x 5 x 4 jobs are 200."""
LIMIT_S = 120.0
EQUAL, DIFFERS, STUCK = "equal", "differs", "did not go on"


def cases(shared: Path) -> Iterable[Case]:
    """All series of all jobs."""
    for job in JOBS.values():
        for number in range(SERIES):
            yield Case(f"{job.name} series {number}", _series(job, number, shared), job.command)


def _series(job: Job, number: int, shared: Path) -> Callable[[Path], Outcome]:
    return lambda place: killed_until_done(job, KILLS, random.Random(f"{job.name} {number}"), place, shared)


def killed_until_done(job: Job, num_kills: int, chance: random.Random, place: Path, shared: Path) -> Outcome:
    """Kill a job `num_kills` times, let it end, and compare it with the uninterrupted one."""
    whole, seconds = uninterrupted(job, shared)
    source = shared / job.name
    kills, ends, starts = 0, 0, 0
    while True:
        out = place / f"out-{ends}"
        delay = chance.uniform(0, seconds) if kills < num_kills else LIMIT_S
        ended = _one_start(job, source, out, place, delay)
        starts += 1
        if ended.code is None:
            return Outcome(STUCK, f"after {kills} kills it ran for {LIMIT_S:.0f} s", _numbers(kills, starts))
        if ended.code == -9 and kills < num_kills:
            kills += 1
            continue
        if ended.code != 0:
            return Outcome(STUCK, f"after {kills} kills: {ended.last_line}", _numbers(kills, starts))
        ends += 1
        different = differing(whole, results_of(out))
        if different:
            return Outcome(DIFFERS, f"after {kills} kills: {', '.join(different[:5])}", _numbers(kills, starts))
        if kills == num_kills:
            return Outcome(EQUAL, numbers=_numbers(kills, starts))


@functools.cache
def uninterrupted(job: Job, shared: Path) -> tuple[dict[str, Any], float]:
    """The results of the job from start to end, and how long that takes; done once for all series."""
    source, out = shared / job.name, shared / f"{job.name}-whole"
    if not source.exists():
        _expect(children.run(lambda: job.prepare(source), shared / "words", shared, LIMIT_S))
    ended = children.run(lambda: job.work(source, out), shared / "words", shared, LIMIT_S)
    _expect(ended)
    timing = shared / f"{job.name}-seconds"
    if not timing.exists():  # later starts find the job done and take less time
        timing.write_text(str(ended.seconds))
    return results_of(out), float(timing.read_text())


def _one_start(job: Job, source: Path, out: Path, place: Path, delay: float) -> Ended:
    child = children.start(lambda: job.work(source, out), place / "words", place)
    ended = child.wait(delay)
    if ended is not None:
        return ended
    if delay >= LIMIT_S:
        return child.end()
    child.kill()
    killed = child.wait(LIMIT_S)
    return killed or child.end()


def _expect(ended: Ended) -> None:
    if ended.code != 0:
        raise RuntimeError(f"an undisturbed job must end well, but: {ended.said}")


def _numbers(kills: int, starts: int) -> dict[str, float]:
    return {"kills": kills, "starts": starts}


PART = Part("kills", "Killed and started again", cases, (EQUAL,), (DIFFERS, STUCK))
