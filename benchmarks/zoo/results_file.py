"""The results of the zoo on disk: saved after every row, taken up again by the next start."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.zoo.tool import Facts

FORMAT = 1
PACKAGES = ("cafenet", "torch", "torchvision", "timm", "torch-pruning", "nvidia-modelopt")


class Results:
    """Rows by (model, tool), with the settings and versions that they were measured under."""

    def __init__(self, path: Path, settings: dict[str, Any], *, fresh: bool) -> None:
        self.path = path
        self.header: dict[str, Any] = {"format": FORMAT, "settings": settings, "versions": _versions()}
        self._rows: dict[tuple[str, str], Facts] = {}
        if path.exists() and not fresh:
            self._load()

    def get(self, model: str, tool: str) -> Facts | None:
        """The row of a model and a tool, if it was measured."""
        return self._rows.get((model, tool))

    def add(self, model: str, tool: str, facts: Facts) -> None:
        """Keep a row and save all."""
        self._rows[model, tool] = facts
        rows = [{"model": key[0], "tool": key[1], **facts} for key, facts in self._rows.items()]
        temporary = self.path.with_name(self.path.name + ".tmp")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps({**self.header, "rows": rows}, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, self.path)

    def models(self) -> list[str]:
        """All models with a row, in order of name."""
        return sorted({model for model, _ in self._rows}, key=lambda name: (":" in name, name))

    def _load(self) -> None:
        saved = json.loads(self.path.read_text(encoding="utf-8"))
        header = {key: saved.get(key) for key in self.header}
        if header != self.header:
            differing = ", ".join(key for key in header if header[key] != self.header[key])
            raise SystemExit(f"{self.path} was measured with other {differing}; add --fresh or another --output")
        for row in saved["rows"]:
            self._rows[row.pop("model"), row.pop("tool")] = row


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
