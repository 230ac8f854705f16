"""Damaged files: every file of a finished and of an unfinished job is damaged in six ways, and the job is used again.

Of files with the same part in a job, such as the models of several methods, one is damaged. After each damage the same
command is given again, `cafenet report` is, and for runs `cafenet compare`, each on a copy of its own.
"""

import functools
import hashlib
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.reliability import children
from benchmarks.reliability.cases import Case, Outcome, Part
from benchmarks.reliability.children import Ended
from benchmarks.reliability.jobs import JOBS, Job, differing, end_of, returned_by
from cafenet.cli.main import main

LIMIT_S = 60.0
SAME, LEFT, CLEAR = "same result", "shows what is left", "clear line, exit 2"
TRACEBACK, WRONG, LESS, SLOW = "traceback", "wrong result", "less without a word", "no end"
NOTICE = re.compile(r"damaged|cannot be read|could not be read|missing|is broken|\byet\b|not finished|not all trained")
"""Words by which a page says that something is not there."""


def flipped(content: bytes, name: str) -> bytes:
    """One bit of one byte changed; which one depends on the file's name alone."""
    place = int(hashlib.sha256(name.encode()).hexdigest(), 16) % max(len(content), 1)
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :] if content else b"\x01"


def noise(content: bytes, name: str) -> bytes:
    """Replace the content by as many bytes that mean nothing, and are no text."""
    block = b"\xff\xfe" + hashlib.sha256(name.encode()).digest()
    return (block * (len(content) // len(block) + 1))[: max(len(content), 8)]


DAMAGES: dict[str, Callable[[bytes, str], bytes | None]] = {
    "truncated": lambda content, name: content[: len(content) // 2],
    "empty": lambda content, name: b"",
    "{}": lambda content, name: b"{}",
    "noise": noise,
    "flipped": flipped,
    "missing": lambda content, name: None,
}
"""Ways to damage a file's content; None removes the file."""


def cases(shared: Path) -> Iterable[Case]:
    """Every job, finished or not, every file, every damage, every use."""
    for job in JOBS.values():
        for state in ("finished", "unfinished"):
            out = template(job, state, shared)
            for file in files_of(out):
                for damage in DAMAGES:
                    for use in uses(job):
                        name = f"{job.name} {state} {file} {damage} {use}"
                        yield Case(name, _check(job, state, file, damage, use, shared), f"{job.name}, {state}: {use}")


def uses(job: Job) -> tuple[str, ...]:
    """Commands after the damage; `compare` takes runs alone."""
    return ("again", "report", "compare") if job.name == "run" else ("again", "report")


def files_of(out: Path) -> list[str]:
    """The files of a job, one for each part that files have in it: of models/*/seed-0/slim.pt, the last one trained."""
    paths = sorted(path for path in out.rglob("*") if path.is_file())
    models = [path for path in paths if path.relative_to(out).parts[0] == "models"]
    kept = max(models, key=lambda path: path.stat().st_mtime_ns).parent if models else out
    return [str(path.relative_to(out)) for path in paths if path not in models or path.parent == kept]


def _check(job: Job, state: str, file: str, damage: str, use: str, shared: Path) -> Callable[[Path], Outcome]:
    return lambda place: damaged(job, state, file, damage, use, place, shared)


def damaged(job: Job, state: str, file: str, damage: str, use: str, place: Path, shared: Path) -> Outcome:
    """Copy a job, damage one file of it, use it, and say what came out."""
    out = place / "out"
    shutil.copytree(template(job, state, shared), out)
    path = out / file
    content = DAMAGES[damage](path.read_bytes(), file)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    ended = used(job, use, out, place, shared)
    trouble = troubled(ended)
    if trouble is not None:
        return trouble
    if use == "again":
        different = differing(end_of(template(job, "finished", shared)), end_of(out))
        return Outcome(WRONG, f"exit 0, but {', '.join(different)} differ") if different else Outcome(SAME)
    return _page_outcome(page_of(use, out, place), undamaged_page(job, state, use, shared), ended, file)


def used(job: Job, use: str, out: Path, place: Path, shared: Path) -> Ended:
    """Do the same again, or make a page."""
    if use == "again":
        return children.run(lambda: job.work(shared / job.name, out), place / "words", place, LIMIT_S)
    arguments = ["report", str(out)]
    if use == "compare":
        arguments = ["compare", str(out), str(template(job, "finished", shared)), "--output", str(place / "page.html")]
    else:
        (out / "report.html").unlink(missing_ok=True)
    return children.run(lambda: main(arguments), place / "words", place, LIMIT_S)


def troubled(ended: Ended) -> Outcome | None:
    """Outcome of a command that did not succeed; a user's mistake ends with code 2 and one line."""
    if ended.code is None:
        return Outcome(SLOW, f"it ran for {LIMIT_S:.0f} s")
    if ended.has_traceback or ended.code not in (0, 2):
        return Outcome(TRACEBACK, f"exit {ended.code}: {ended.last_line}")
    return Outcome(CLEAR) if ended.code == 2 else None


@functools.cache
def template(job: Job, state: str, shared: Path) -> Path:
    """The directory of a job that has ended, or that was killed when its last training had begun; made once."""
    source, out = shared / job.name, shared / f"{job.name}-{state}"
    if not source.exists():
        _expect(children.run(lambda: job.prepare(source), shared / "words", shared, LIMIT_S))
    if out.exists():
        return out
    half = out.with_name(f"{out.name}-half")
    shutil.rmtree(half, ignore_errors=True)
    if state == "finished":
        _expect(children.run(lambda: job.work(source, half), shared / "words", shared, LIMIT_S))
        if returned_by(half).exists():
            returned_by(half).rename(returned_by(out))
    else:
        _kill_late(job, source, half, shared)
    return half.rename(out)


def _kill_late(job: Job, source: Path, out: Path, shared: Path) -> None:
    """Kill a job as soon as the checkpoint of its last training is there."""
    finished = template(job, "finished", shared)
    trained = [path for path in finished.rglob("*.pt") if path.name in ("model.pt", "detector.pt")]
    last = max(trained, key=lambda path: path.stat().st_mtime_ns).relative_to(finished)
    child = children.start(lambda: job.work(source, out), shared / "words", shared)
    while not (out / last).exists():
        if child.wait(0.001) is not None:
            raise RuntimeError(f"{job.name} ended before {last} was there")
    child.kill()
    child.wait(LIMIT_S)


@functools.cache
def undamaged_page(job: Job, state: str, use: str, shared: Path) -> str:
    """The page of the job as it is."""
    place = shared / "page"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(template(job, state, shared), place / "out")
    ended = used(job, use, place / "out", place, shared)
    _expect(ended)
    return page_of(use, place / "out", place)


def page_of(use: str, out: Path, place: Path) -> str:
    """A page's text without what every page has of its own: the directory's name and the ids of its figures."""
    text = (place / "page.html" if use == "compare" else out / "report.html").read_text()
    text = text.replace(str(place), "PLACE")
    return re.sub(r'(id="|url\(#|href="#)[\w-]+', r"\1ID", text)


def _page_outcome(page: str, before: str, ended: Ended, file: str) -> Outcome:
    """A page that differs must say why; one that only lacks something is told from one that shows something else."""
    if page == before:
        return Outcome(SAME)
    old = set(_texts(before))
    new = [text for text in _texts(page) if text not in old]
    words = "\n".join([*new, ended.said, ended.printed])
    if NOTICE.search(words) or Path(file).name in words:
        return Outcome(LEFT)
    return Outcome(WRONG, f"the page says {new[0]!r}, and nothing of the damage") if new else Outcome(LESS, "no word")


def _texts(page: str) -> list[str]:
    """The words of a page and of the tips of its figures, without the figures themselves."""
    tips = re.findall(r'data-tip="([^"]*)"', page)
    page = re.sub(r"<(svg|script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return [text.strip() for text in re.split(r"<[^>]*>", page) if text.strip()] + tips


def _expect(ended: Ended) -> Any:
    if ended.code != 0:
        raise RuntimeError(f"an undamaged job must end well, but: {ended.said}")


PART = Part("damaged", "Damaged files", cases, (SAME, LEFT, CLEAR), (TRACEBACK, WRONG, LESS, SLOW))
