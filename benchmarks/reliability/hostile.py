"""Hostile files: what somebody else gave the user must not run code, in Python or in a browser, nor take the machine.

Every attack that succeeds leaves a mark: code that ran creates a file, and a script in a page is found in its text.
What is refused must be refused with a clear line, within seconds, and without the memory that the file asks for.
"""

import html
import json
import os
import pickle
import re
import shutil
import socket
import sys
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

import cafenet
from benchmarks.reliability import children
from benchmarks.reliability.cases import Case, Outcome, Part
from benchmarks.reliability.children import Ended
from benchmarks.reliability.damaged import files_of, template
from benchmarks.reliability.jobs import JOBS, NET_FILE, SIZE, differing, end_of
from cafenet.cli.main import main
from cafenet.common.seals import sealed
from cafenet.searching.store.salvage import encoded

LIMIT_S, MOST_MB = 15.0, 2000.0
"""Time and memory that a refusal may take; the benchmark itself has some 300 MB in memory."""
MARK = "owned"
REFUSED, HARMLESS, ESCAPED = "refused, clear line", "no effect", "shown as text"
RAN, SCRIPT, TRACEBACK, ACCEPTED, GREEDY = (
    "ran code",
    "script in a page",
    "traceback",
    "accepted",
    "too slow or too large",
)
SCRIPTS = {
    "script": "<script>owned()</script>",
    "attribute": "\"><img src=x onerror='owned()'>",
    "end of script": "</script><script>owned()</script>",
    "end of style": "</style></svg><script>owned()</script>",
}
"""Names that are code where a page shows them as they are."""


class Bomb:
    """An object whose pickle creates a file when it is read."""

    def __reduce__(self) -> Any:
        return os.system, (f"touch {MARK}",)


def raw_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Bomb()))


def torch_pickle(path: Path) -> None:
    torch.save({"format": "cafenet-checkpoint", "format_version": 1, "model": Bomb()}, path)


def slim_pickle(path: Path) -> None:
    torch.save({"format": "cafenet-slim", "format_version": 1, "tensors": {"0.weight": Bomb()}}, path)


def checkpoint_of(content: Any) -> Callable[[Path], None]:
    """A checkpoint of these values."""
    return lambda path: torch.save(content, path)


CHECKPOINTS: dict[str, Callable[[Path], None]] = {
    "raw pickle": raw_pickle,
    "pickle in an archive": torch_pickle,
    "pickle in a slim file": slim_pickle,
    "no version": checkpoint_of({"format": "cafenet-checkpoint"}),
    "no identity": checkpoint_of({"format": "cafenet-checkpoint", "format_version": 1}),
    "identity of a wrong type": checkpoint_of({"format": "cafenet-checkpoint", "format_version": 1, "identity": 3}),
    "another version": checkpoint_of({"format": "cafenet-checkpoint", "format_version": 99, "identity": {}}),
    "a list": checkpoint_of([1, 2, 3]),
    "a number": checkpoint_of(3),
    "a huge tensor": checkpoint_of({"format": "cafenet-slim", "tensors": torch.zeros(1).expand(10**6, 10**6)}),
    "a slim file of nothing": checkpoint_of({"format": "cafenet-slim", "format_version": 1}),
}


def cases(shared: Path) -> Iterable[Case]:
    """All attacks."""
    yield from _checkpoint_cases(shared)
    yield from _slim_cases()
    yield from _recipe_cases(shared)
    yield from _data_cases()
    yield from _nesting_cases(shared)
    yield from _name_cases(shared)
    yield from _dashboard_cases(shared)


def _checkpoint_cases(shared: Path) -> Iterable[Case]:
    for job in JOBS.values():
        for file in files_of(template(job, "unfinished", shared)):
            if file.endswith(".pt"):
                for name, write in CHECKPOINTS.items():
                    check = _in_checkpoint(job.name, file, write, shared)
                    yield Case(f"{job.name} {file}: {name}", check, "checkpoints and slim files of a run")


def _in_checkpoint(job: str, file: str, write: Callable[[Path], None], shared: Path) -> Callable[[Path], Outcome]:
    def check(place: Path) -> Outcome:
        out = place / "out"
        shutil.copytree(template(JOBS[job], "unfinished", shared), out)
        (out / file).unlink()
        write(out / file)
        ended = _run(place, lambda: JOBS[job].work(shared / job, out))
        if _trouble(place, ended) is None and ended.code == 0:
            whole = template(JOBS[job], "finished", shared)
            different = differing(*(_without_weights(end_of(each)) for each in (whole, out)))
            return Outcome(ACCEPTED, f"{', '.join(different)} differ") if different else Outcome(HARMLESS)
        return _judged(place, ended)

    return check


def _without_weights(end: dict[str, Any]) -> dict[str, Any]:
    """The tables alone: a hostile file that nothing reads lies where it was."""
    return {name: value for name, value in end.items() if not name.endswith(".pt")}


def _slim_cases() -> Iterable[Case]:
    for name, write in CHECKPOINTS.items():
        yield Case(f"cafenet.load: {name}", _refusal(lambda w=write: _load_slim(w)), "slim files for cafenet.load")
    for name, change in SLIM_CHANGES.items():
        yield Case(f"cafenet.load: {name}", _refusal(lambda c=change: _load_changed(c)), "slim files for cafenet.load")


def _flip_data(path: Path) -> None:
    """Change one bit of the largest tensor, and the archive's own checksum with it."""
    with zipfile.ZipFile(path) as archive:
        parts = {info.filename: archive.read(info) for info in archive.infolist()}
    largest = max((name for name in parts if "/data/" in name), key=lambda name: len(parts[name]))
    parts[largest] = parts[largest][:-2] + bytes([parts[largest][-2] ^ 64]) + parts[largest][-1:]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def _edit(**changes: Callable[[Any], Any]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        content = torch.load(path, weights_only=True)
        for key, change in changes.items():
            content[key] = change(content[key])
        torch.save(content, path)

    return edit


SLIM_CHANGES: dict[str, Callable[[Path], None]] = {
    "a flipped bit with a good checksum of the archive": _flip_data,
    "an attribute named forward": _edit(attributes=lambda a: [*a, ["0", "forward", 3]]),
    "an attribute named training": _edit(attributes=lambda a: [*a, ["", "training", "yes"]]),
    "an attribute named __class__": _edit(attributes=lambda a: [*a, ["0", "__class__", 3]]),
    "an attribute of another module": _edit(attributes=lambda a: [*a, ["0.absent.x", "out_channels", 3]]),
    "channels outside": _edit(channels=lambda c: c | {"0": [99999, 1, 2, 3]}),
    "widths of another file": _edit(widths=lambda w: w | {"0": 7}),
    "a tensor of another shape": _edit(tensors=lambda t: t | {"0.weight": torch.zeros(3, 1, 3, 3)}),
    "a tensor of another type": _edit(tensors=lambda t: t | {"0.weight": torch.zeros(4, 1, 3, 3, dtype=torch.int64)}),
    "a tensor of 10^12 numbers": _edit(tensors=lambda t: t | {"0.weight": torch.zeros(1).expand(10**6, 10**6)}),
    "a tensor that is none": _edit(tensors=lambda t: t | {"0.weight": "weights"}),
    "tensors as a list": _edit(tensors=lambda t: list(t.values())),
    "a further tensor": _edit(tensors=lambda t: t | {"9.weight": torch.zeros(3)}),
    "shapes that are no lists": _edit(full_shapes=lambda s: dict.fromkeys(s, 3)),
}


def _small_model() -> torch.nn.Module:
    namespace: dict[str, Any] = {}
    exec(NET_FILE, namespace)
    model: torch.nn.Module = namespace["build"]()
    return model


def _load_slim(write: Callable[[Path], None]) -> int:
    write(Path("slim.pt"))
    return _as_command(lambda: cafenet.load("slim.pt", _small_model()))


def _load_changed(change: Callable[[Path], None]) -> int:
    model = _small_model()
    cafenet.save(cafenet.trace(model, torch.zeros(1, 1, SIZE, SIZE)).extract({"0": 4, "3": 6}), "slim.pt")
    change(Path("slim.pt"))
    return _as_command(lambda: cafenet.load("slim.pt", model))


LAUGHS = tuple(zip("abcdefgh", "bcdefghi", strict=True))
"""Nine levels of nine aliases each are 387 million values."""
RECIPES: dict[str, str] = {
    "a Python tag": "search: !!python/object/apply:os.system ['touch owned']\n",
    "a Python name": "search: !!python/name:os.system\n",
    "aliases of aliases": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{after}: &{after} [{','.join([f'*{before}'] * 9)}]\n" for before, after in LAUGHS),
    "aliases of aliases in a known key": "model:\n  options:\n    a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"    {after}: &{after} [{','.join([f'*{before}'] * 9)}]\n" for before, after in LAUGHS),
    "an alias of itself": "model: &m {options: *m}\n",
    "nested 3,000 deep": "model: {options: {a: " + "[" * 3000 + "]" * 3000 + "}}\n",
    "nested 100,000 deep": "[" * 100_000,
    "a long number": "seed: " + "9" * 100_000 + "\n",
    "100,000 keys": "model: {options: {" + ",".join(f"k{number}: 1" for number in range(100_000)) + "}}\n",
    "a key with a script": "'<script>owned()</script>': 3\n",
}


def _recipe_cases(shared: Path) -> Iterable[Case]:
    for name, text in RECIPES.items():
        yield Case(f"recipe: {name}", _refusal(lambda t=text: _run_recipe(t)), "recipes")
        yield Case(f"recipe of a run, report: {name}", _in_run("recipe.yaml", text, shared), "recipes")


def _run_recipe(text: str) -> int:
    Path("bad.yaml").write_text(text)
    return main(["run", "bad.yaml", "--output", "out", "--quiet"])


def _in_run(file: str, text: str, shared: Path) -> Callable[[Path], Outcome]:
    """A finished run with one file replaced, reported."""

    def check(place: Path) -> Outcome:
        out = place / "out"
        shutil.copytree(template(JOBS["run"], "finished", shared), out)
        (out / file).write_text(text)
        ended = _run(place, lambda: main(["report", str(out)]))
        page = out / "report.html"
        if ended.code == 0 and _trouble(place, ended) is None:
            return _page_judged(page.read_text())
        return _judged(place, ended)

    return check


def npy_header(shape: tuple[int, ...], descr: str = "|u1") -> bytes:
    """The head of an array file, with no data behind it."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def _npz(images: bytes, labels: bytes | None = None) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        for part in ("train", "test"):
            with zipfile.ZipFile(place / f"{part}.npz", "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("images.npy", images)
                archive.writestr("labels.npy", labels or npy_header((4,), "<i8") + bytes(32))

    return write


def _objects(place: Path) -> None:
    bombs = np.array([Bomb()] * 4, dtype=object)
    for part in ("train", "test"):
        np.savez(place / f"{part}.npz", images=bombs, labels=bombs)


def _pickles(place: Path) -> None:
    for part in ("train", "test"):
        raw_pickle(place / f"{part}.npz")


def png(width: int, height: int, *, is_whole: bool) -> bytes:
    """A grey picture; all its pixels are black, which takes hardly any room, or missing."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 0, 0, 0, 0])
    pixels = zlib.compress(bytes(width + 1) * (height if is_whole else 1), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _folder(picture: bytes) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        small = png(SIZE, SIZE, is_whole=True)
        for number in range(32):
            for part in ("train", "val"):
                path = place / part / "ab"[number % 2] / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(picture if number == 3 else small)

    return write


DATA: dict[str, tuple[str, Callable[[Path], None]]] = {
    "pickled objects in an npz": ("npz", _objects),
    "a pickle named npz": ("npz", _pickles),
    "an npz that claims 100 GB": ("npz", _npz(npy_header((100_000, 1000, 1000)))),
    "an npz that claims 10^18 bytes": ("npz", _npz(npy_header((10**6, 10**6, 10**6)))),
    "labels that claim 100 GB": ("npz", _npz(npy_header((4, 12, 12)) + bytes(576), npy_header((10**10,), "<i8"))),
    "an npz with a negative shape": ("npz", _npz(npy_header((-4, 12, 12)))),
    "an npz whose head is code": ("npz", _npz(b"\x93NUMPY\x01\x00\x20\x00__import__('os').system('touch owned')"[:42])),
    "a picture of 144 megapixels": ("folder", _folder(png(12_000, 12_000, is_whole=True))),
    "a picture that claims 144 megapixels": ("folder", _folder(png(12_000, 12_000, is_whole=False))),
    "a picture that claims 3,600 megapixels": ("folder", _folder(png(60_000, 60_000, is_whole=False))),
    "a picture that claims a width of 2^31": ("folder", _folder(png(2**31 - 1, 1, is_whole=False))),
    "a picture that is a pickle": ("folder", _folder(pickle.dumps(Bomb()))),
    "a picture that is HTML": ("folder", _folder(b"<html><script>owned()</script></html>")),
}


def _data_cases() -> Iterable[Case]:
    for name, (kind, write) in DATA.items():
        yield Case(f"data: {name}", _refusal(lambda k=kind, w=write: _run_data(k, w)), "data")


def _run_data(kind: str, write: Callable[[Path], None]) -> int:
    place = Path.cwd()
    write(place)
    (place / "net.py").write_text(NET_FILE.replace("Conv2d(1, 8", "Conv2d(3, 8") if kind == "folder" else NET_FILE)
    recipe = {
        "model": {"name": f"{place}/net.py:build", "input_size": [3 if kind == "folder" else 1, SIZE, SIZE]},
        "data": {"source": f"{kind}:{place}", "validation_share": 0.3},
        "train": {"epochs": 1, "batch_size": 4},
    }
    if kind == "folder":
        recipe["model"] |= {"options": {"num_classes": 2}}
        recipe["data"] |= {"options": {"size": [SIZE, SIZE]}}
    (place / "bad.yaml").write_text(yaml.safe_dump(recipe))
    return main(["run", "bad.yaml", "--output", "out", "--quiet", "--baselines.fixed=false"])


def _nesting_cases(shared: Path) -> Iterable[Case]:
    deep = "[" * 100_000
    for file in files_of(template(JOBS["run"], "finished", shared)):
        if file.endswith((".json", ".jsonl", ".journal")):
            yield Case(f"{file} nested 100,000 deep, report", _in_run(file, deep, shared), "nested JSON")


NAMED: dict[str, Callable[[Path, str], None]] = {
    "recipe.yaml: description": lambda out, text: _set(out / "recipe.yaml", ["description"], text),
    "recipe.yaml: data.source": lambda out, text: _set(out / "recipe.yaml", ["data", "source"], text),
    "recipe.yaml: search.budget": lambda out, text: _set(out / "recipe.yaml", ["budget"], text),
    "manifest.json: command": lambda out, text: _set(out / "manifest.json", ["command"], [text]),
    "manifest.json: stopped": lambda out, text: _set(
        out / "manifest.json", ["stopped"], {"step": text, "reason": text}
    ),
    "manifest.json: versions": lambda out, text: _set(out / "manifest.json", ["versions", text], text),
    "results.json: method": lambda out, text: _set(out / "results.json", ["rows", 1, "method"], text),
    "results.json: budget": lambda out, text: _set(out / "results.json", ["rows", 1, "budget"], text),
    "results.json: reference": lambda out, text: _set(
        out / "results.json",
        ["reference"],
        [dict.fromkeys(("method", "budget", "flops", "params", "accuracy", "top5", "source"), text)],
    ),
    "entries.json: method": lambda out, text: _set(out / "entries.json", ["entries", 1, "method"], text),
    "space.json: a group's name": lambda out, text: _set(out / "space.json", ["groups", 0, "name"], text),
    "trials.journal: a search's name": lambda out, text: _replace(
        out / "supernet" / "trials.journal", "evolution", text
    ),
    "the directory's name": lambda out, text: None,
}


def _name_cases(shared: Path) -> Iterable[Case]:
    for name, edit in NAMED.items():
        for kind, text in SCRIPTS.items():
            for use in ("report", "compare"):
                yield Case(f"{name}, {kind}: {use}", _named(edit, text, use, shared), "names that are scripts")
    for kind, text in SCRIPTS.items():
        for key in ("description", "backbone"):
            yield Case(f"detect: {key}, {kind}: report", _named_detector(key, text, shared), "names that are scripts")


def _named(edit: Callable[[Path, str], None], text: str, use: str, shared: Path) -> Callable[[Path], Outcome]:
    def check(place: Path) -> Outcome:
        is_name = edit is NAMED["the directory's name"]
        out = place / (text.replace("/", "|") if is_name else "out")
        shutil.copytree(template(JOBS["run"], "finished", shared), out)
        edit(out, text)
        page = place / "page.html" if use == "compare" else out / "report.html"
        other = [str(template(JOBS["run"], "finished", shared)), "--output", str(page)] if use == "compare" else []
        ended = _run(place, lambda: main([use, str(out), *other]))
        if ended.code == 0 and _trouble(place, ended) is None:
            return _page_judged(page.read_text())
        return _judged(place, ended)

    return check


def _named_detector(key: str, text: str, shared: Path) -> Callable[[Path], Outcome]:
    def check(place: Path) -> Outcome:
        out = place / "out"
        shutil.copytree(template(JOBS["detect"], "finished", shared), out)
        if key == "description":
            _set(out / "recipe.yaml", ["description"], text)
        else:
            _set(out / "results.json", ["detectors", 0, "backbone"], text)
        ended = _run(place, lambda: main(["report", str(out)]))
        if ended.code == 0 and _trouble(place, ended) is None:
            return _page_judged((out / "report.html").read_text())
        return _judged(place, ended)

    return check


def _page_judged(page: str) -> Outcome:
    """Whether an attacker's tag stands in a page as a tag; as text, its first character is written as &lt;."""
    is_code = re.search(r"<script[^>]*>\s*owned\(|<img src=x", page, re.IGNORECASE)
    if is_code:
        return Outcome(SCRIPT, page[max(0, is_code.start() - 60) : is_code.end() + 20])
    shown = any(html.escape(text, quote=False)[:12] in page for text in SCRIPTS.values())
    return Outcome(ESCAPED if shown else HARMLESS)


def _set(path: Path, keys: list[Any], value: Any) -> None:
    is_yaml = path.suffix == ".yaml"
    content = yaml.safe_load(path.read_text()) if is_yaml else json.loads(path.read_text())
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(yaml.safe_dump(content) if is_yaml else json.dumps(sealed(content)))


def _replace(path: Path, old: str, new: str) -> None:
    lines = path.read_text().replace(old, json.dumps(new)[1:-1]).splitlines()
    path.write_bytes(b"".join(encoded(json.loads(line)) for line in lines))


REQUESTS: dict[str, tuple[str, dict[str, str], bytes | None]] = {
    "a foreign Host": ("/api/studies", {"Host": "evil.example"}, None),
    "a foreign Host with the port": ("/api/studies", {"Host": "evil.example:{port}"}, None),
    "a cross-site write": (
        "/api/studies",
        {"Origin": "http://evil.example", "Content-Type": "text/plain"},
        b'{"study_name": "owned", "directions": ["maximize"]}',
    ),
    "a cross-site write by fetch": (
        "/api/studies",
        {"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"},
        b'{"study_name": "owned", "directions": ["maximize"]}',
    ),
}


def _dashboard_cases(shared: Path) -> Iterable[Case]:
    for name, request in REQUESTS.items():
        yield Case(f"dashboard: {name}", _asked(request, shared), "requests to the dashboard")


def _asked(request: tuple[str, dict[str, str], bytes | None], shared: Path) -> Callable[[Path], Outcome]:
    def check(place: Path) -> Outcome:
        out = place / "out"
        shutil.copytree(template(JOBS["run"], "finished", shared), out)
        port = _free_port()
        arguments = ["dashboard", str(out), "--port", str(port)]
        server = children.start(lambda: main(arguments), place / "words", place / "cwd")
        try:
            status = _status(port, *request)
        finally:
            ended = server.end()
        if status is None:
            return Outcome(TRACEBACK, f"no answer: {ended.last_line}")
        return Outcome(REFUSED) if 400 <= status < 500 else Outcome(ACCEPTED, f"status {status}")

    return check


def _status(port: int, path: str, headers: dict[str, str], body: bytes | None) -> int | None:
    """The status of an answer, as soon as the server is there."""
    filled = {name: value.replace("{port}", str(port)) for name, value in headers.items()}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=filled)
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            time.sleep(0.1)
    return None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _as_command(call: Callable[[], Any]) -> int:
    """A call of Python with a clear error as a command shows it: one line, code 2."""
    try:
        call()
    except cafenet.CafeNetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _refusal(act: Callable[[], int]) -> Callable[[Path], Outcome]:
    return lambda place: _judged(place, _run(place, act))


def _run(place: Path, act: Callable[[], Any]) -> Ended:
    return children.run(act, place / "words", place / "cwd", LIMIT_S)


def _trouble(place: Path, ended: Ended) -> Outcome | None:
    if any(place.rglob(MARK)):
        return Outcome(RAN, "the mark is there")
    if ended.code is None or ended.peak_mb > MOST_MB:
        return Outcome(GREEDY, f"{ended.seconds:.0f} s, {ended.peak_mb:.0f} MB")
    if ended.has_traceback or ended.code not in (0, 2):
        return Outcome(TRACEBACK, f"exit {ended.code}: {ended.last_line}")
    return None


def _judged(place: Path, ended: Ended) -> Outcome:
    trouble = _trouble(place, ended)
    if trouble is not None:
        return trouble
    return Outcome(REFUSED) if ended.code == 2 else Outcome(ACCEPTED, "no error")


PART = Part("hostile", "Hostile files", cases, (REFUSED, HARMLESS, ESCAPED), (RAN, SCRIPT, TRACEBACK, ACCEPTED, GREEDY))
