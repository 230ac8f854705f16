"""A benchmark's results on disk: saved after every piece, also by several processes at once."""

import fcntl
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

FORMAT = 1
PACKAGES = ("cafenet", "torch", "numpy", "optuna")


class Results:
    """Rows by part and name, as JSON with one row a line."""

    def __init__(self, path: Path, *, fresh: bool = False, any_version: bool = False) -> None:
        self.path = path
        self.versions = {"python": platform.python_version()} | {package: version(package) for package in PACKAGES}
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            path.unlink(missing_ok=True)
        saved = self._read()
        if saved["versions"] != self.versions and not any_version:  # to read, not to add to it
            raise SystemExit(f"{path} was measured with {saved['versions']}; add --fresh or another --output")

    def parts(self) -> list[str]:
        """The names of all parts."""
        return list(self._read()["parts"])

    def rows(self, part: str) -> dict[str, Any]:
        """The rows of a part, by name."""
        rows: dict[str, Any] = self._read()["parts"].get(part, {})
        return rows

    def add(self, part: str, name: str, row: Any, inner: str | None = None) -> None:
        """Keep a row, or with `inner` one entry of it, beside what other processes have written meanwhile."""
        with _locked(self.path.parent):
            saved = self._read()
            rows = saved["parts"].setdefault(part, {})
            if inner is None:
                rows[name] = row
            else:
                rows.setdefault(name, {})[inner] = row
            temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
            temporary.write_text(_text(saved), encoding="utf-8")
            os.replace(temporary, self.path)

    def _read(self) -> dict[str, Any]:
        if not self.path.exists():
            return {"format": FORMAT, "versions": self.versions, "parts": {}}
        saved: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        return saved


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _text(saved: dict[str, Any]) -> str:
    parts = []
    for part, rows in saved["parts"].items():
        lines = [f"  {json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}" for name, row in rows.items()]
        parts.append(f" {json.dumps(part)}: {{\n" + ",\n".join(lines) + "\n }")
    head = f'{{"format": {saved["format"]}, "versions": {json.dumps(saved["versions"])}, "parts": {{\n'
    return head + ",\n".join(parts) + "\n}}\n"
