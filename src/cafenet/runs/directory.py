"""A run's directory: its recipe and its manifest."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import yaml

from cafenet.atomic import write_json, write_text
from cafenet.checkpoint import differences
from cafenet.config import Recipe
from cafenet.errors import RecipeError
from cafenet.recipes import as_document, to_yaml

FORMAT_VERSION = 1
_PACKAGES = ("cafenet", "torch", "torchvision", "numpy", "scipy", "optuna", "jsonargparse")
WITHOUT_EFFECT = ("description", "reference")
"""Parts of a recipe that no result depends on."""


class RunDirectory:
    """Where everything of one run lies; a second start of the same recipe, perhaps with more seeds, continues in it."""

    def __init__(self, path: Path, recipe: Recipe, command: list[str] | None = None) -> None:
        self.path = path
        self._manifest_path = path / "manifest.json"
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._check_recipe(recipe)
            write_text(path / "recipe.yaml", to_yaml(recipe))
            self._start(recipe, sys.argv if command is None else command)
        except OSError as error:
            raise RecipeError(
                f"the run directory {path} must be writable, but: {error.strerror or error}; give another --output"
            ) from error

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the time spent inside to the manifest, also if it ends in an error, which is noted beside it."""
        start = time.monotonic()
        stopped = None
        try:
            yield
        except BaseException as error:
            stopped = {"step": step, "reason": str(error) or type(error).__name__}
            raise
        finally:
            manifest = json.loads(self._manifest_path.read_text())
            seconds = manifest["seconds"].get(step, 0.0) + time.monotonic() - start
            manifest["seconds"][step] = round(seconds, 3)
            write_json(self._manifest_path, manifest | {"stopped": stopped})

    def finish(self) -> None:
        """Note that the run is complete."""
        manifest = json.loads(self._manifest_path.read_text())
        write_json(self._manifest_path, manifest | {"finished": _now()})

    def _check_recipe(self, recipe: Recipe) -> None:
        path = self.path / "recipe.yaml"
        if not path.exists():
            if (self.path / "search.json").exists():
                raise RecipeError(f"{self.path} holds what cafenet.search found, no run; give another --output")
            return
        try:
            before = dict(yaml.safe_load(path.read_text()))
        except (yaml.YAMLError, TypeError, ValueError) as error:
            raise RecipeError(f"{path} must be the recipe of a run, but is not; give another --output") from error
        now = as_document(recipe)
        for document in (before, now):
            for key in WITHOUT_EFFECT:
                document.pop(key, None)
        has_more_seeds = _take_over_seeds(before, now)
        changed = differences(before, now)
        if changed:
            details = "; ".join(changed[:5]) + (f"; and {len(changed) - 5} more" if len(changed) > 5 else "")
            raise RecipeError(
                f"{self.path} holds a run of another recipe ({details}); give another directory with --output, or "
                "undo the change to continue this run"
            )
        if has_more_seeds:
            write_json(self._manifest_path, json.loads(self._manifest_path.read_text()) | {"finished": None})

    def _start(self, recipe: Recipe, command: list[str]) -> None:
        if self._manifest_path.exists():
            return
        manifest = {
            "format": "cafenet-run",
            "format_version": FORMAT_VERSION,
            "started": _now(),
            "finished": None,
            "stopped": None,
            "command": command,
            "seed": recipe.seed,
            "versions": {"python": platform.python_version(), **_versions()},
            "git_revision": _git_revision(),
            "hardware": {
                "machine": platform.machine(),
                "system": platform.system(),
                "cpu_cores": os.cpu_count(),
                "threads": torch.get_num_threads(),
                "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
            },
            "seconds": {},
        }
        write_json(self._manifest_path, manifest)


def _take_over_seeds(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether `now` has all seeds of the final trainings of `before` and more, which is no other run; then both do."""
    old, new = (document.get("retrain", document) for document in (before, now))
    if not isinstance(old, dict) or not set(old.get("seeds", ())) < set(new.get("seeds", ())):
        return False
    old["seeds"] = new["seeds"]
    return True


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _git_revision() -> str | None:
    """The revision of the working directory, with + where files differ from it; None outside a repository."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
        changed = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "") if head.returncode == 0 else None


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
