"""Cases, their outcomes, and the loop that keeps every outcome as soon as it is known; all parts share them."""

import fnmatch
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cafenet
from benchmarks.common.places import ROOT
from benchmarks.common.results_file import Results


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case."""

    kind: str
    """One of the part's words, such as "clear line" or "traceback"."""
    detail: str = ""
    """The message in one line, if the outcome is a bad one."""
    numbers: dict[str, float] = field(default_factory=dict)
    """Further counts."""


@dataclass(frozen=True)
class Case:
    """One thing that is tried."""

    name: str
    check: Callable[[Path], Outcome]
    """Tries it; the directory is empty and the case's own."""
    group: str = ""
    """The row of the page's table that the case counts in."""


@dataclass(frozen=True)
class Part:
    """One part of the benchmark."""

    name: str
    title: str
    cases: Callable[[Path], Iterable[Case]]
    """Makes the cases; the directory keeps what they share, also from one start to the next."""
    good: tuple[str, ...]
    """Outcomes that are as they should be."""
    bad: tuple[str, ...]
    """Outcomes that are defects."""


def measured_revision() -> str:
    """The revision of this checkout, with + where its sources differ from it; another package is not measured here."""
    sources = ROOT / "src"
    found = Path(cafenet.__file__).resolve()
    if not found.is_relative_to(sources):
        raise SystemExit(f"the package must be that of {sources}, but is {found}; set PYTHONPATH={sources}:{ROOT}")
    revision = _git("rev-parse", "--short", "HEAD")
    return revision + ("+" if _git("status", "--porcelain", "--", "src") else "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def measure(part: Part, results: Results, scratch: Path, revision: str, only: str | None = None) -> None:
    """Try the cases that have no outcome yet, or those whose names match `only`, and keep each outcome at once."""
    shared = scratch / part.name
    shared.mkdir(parents=True, exist_ok=True)
    done = results.rows(part.name)
    start = time.monotonic()
    for number, case in enumerate(part.cases(shared)):
        is_asked_for = case.name not in done if only is None else _matches(case.name, only)
        if not is_asked_for:
            continue
        row = _tried(part, case, scratch / "case") | {"revision": revision}
        results.add(part.name, case.name, row)
        if row["outcome"] in part.bad or only is not None:
            print(f"{part.name}: {case.name}: {row['outcome']}: {row.get('detail', '')}", flush=True)
        elif number % 50 == 49:
            print(f"{part.name}: {number + 1} cases, {time.monotonic() - start:.0f} s", flush=True)


def _matches(name: str, pattern: str) -> bool:
    """Whether a name is the pattern or matches it; names may hold brackets themselves."""
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def _tried(part: Part, case: Case, place: Path) -> dict[str, Any]:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    start = time.monotonic()
    outcome = case.check(place)
    if outcome.kind not in part.good + part.bad:
        raise RuntimeError(f"{case.name}: {outcome.kind!r} is no outcome of {part.name}")
    row = {"group": case.group, "outcome": outcome.kind, "seconds": round(time.monotonic() - start, 2)}
    row |= outcome.numbers
    return row | ({"detail": one_line(outcome.detail)} if outcome.kind in part.bad else {})


def one_line(text: str, most: int = 240) -> str:
    """A text on one line that is not too long, without the paths of this machine."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."
