"""A run's directory: its recipe and its manifest."""

import logging
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

from cafenet.common.files import put_aside, write_json, write_text
from cafenet.common.run_files import MANIFEST, RECIPE, SEARCH, gone, read_file, read_if_there
from cafenet.common.yaml_text import read_yaml
from cafenet.errors import CafeNetError, RecipeError, RunFileError
from cafenet.runs.identity import digest_of_values
from cafenet.runs.recipe import Recipe
from cafenet.runs.recipe_files import as_document, to_yaml
from cafenet.training.checkpoint import differences

_log = logging.getLogger(__name__)

FORMAT_VERSION = 1
"""Version of the format of a run's manifest."""
_PACKAGES = ("cafenet", "torch", "torchvision", "numpy", "scipy", "optuna", "jsonargparse")
WITHOUT_EFFECT = ("description", "reference")
"""Keys of a recipe that no result depends on."""


class RunDirectory:
    """The directory that holds everything of one run.

    A second start of the same recipe, perhaps with more seeds, continues in it.
    """

    def __init__(self, path: Path, recipe: Recipe, command: list[str] | None = None) -> None:
        """Create the directory, or check that it belongs to the same recipe.

        Args:
            path: The directory.
            recipe: The recipe of the run.
            command: The command line for the manifest, by default that of this process.

        Raises:
            RecipeError: If the directory cannot be written, or holds a run of another recipe.
            RunFileError: If the recipe in the directory is damaged.
        """
        self.path, self._recipe = path, recipe
        self._command = sys.argv if command is None else command
        self._manifest_path = path / MANIFEST.name
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._check_recipe(recipe)
            text = to_yaml(recipe)
            self._recipe_digest = digest_of_values(read_yaml(text, RECIPE.name))
            write_text(path / RECIPE.name, text)
            self._write_manifest({"recipe": self._recipe_digest})
        except OSError as error:
            raise RecipeError(
                f"the run directory {path} must be writable, but: {error.strerror or error}; give another --output"
            ) from error

    def check_data(self, digest: str) -> None:
        """Record which training data the run is about; refuse data that everything in the directory is not about.

        Supernets, trials and channels found all depend on them, so none of these files needs a digest of its own. Where
        nothing was trained yet, other data may take their place: a damaged image was replaced, for instance.

        Args:
            digest: Digest of the training and validation data.

        Raises:
            RunFileError: If the run began with other data.
        """
        before = self._manifest().get("train_data")
        if before not in (None, digest) and any(self.path.rglob("*.pt")):
            raise RunFileError(
                f"{self.path} must hold a run on the same training data, but they have changed since it began (digest "
                f"{digest}, was {before}); give another directory with --output, or put the earlier data in their place"
            )
        self._write_manifest({"train_data": digest})

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the time spent inside to the manifest, also if it ends in an error, which the manifest then names.

        Args:
            step: Name of the step, under which times are summed.

        Yields:
            Nothing.

        Raises:
            RunFileError: If somebody has removed the directory meanwhile.
        """
        start = time.monotonic()
        try:
            yield
        except BaseException as error:
            if self._is_removed and isinstance(error, (OSError, CafeNetError)):
                raise gone(self.path) from error
            if not self._is_removed:
                self._note(step, start, {"step": step, "reason": str(error) or type(error).__name__})
            raise
        self._note(step, start, None)

    @property
    def _is_removed(self) -> bool:
        """True if somebody has removed the directory; writing a file into it may have created a part of it again."""
        return not (self.path / RECIPE.name).exists() and not self._manifest_path.exists()

    def _note(self, step: str, start: float, stopped: dict[str, str] | None) -> None:
        """Write the time of a step into the manifest."""
        if self._is_removed:
            raise gone(self.path)
        seconds = self._manifest()["seconds"]
        total = seconds.get(step, 0.0) + time.monotonic() - start
        self._write_manifest({"seconds": {**seconds, step: round(total, 3)}, "stopped": stopped})

    def finish(self) -> None:
        """Record in the manifest that the run is complete."""
        self._write_manifest({"finished": _now()})

    def _check_recipe(self, recipe: Recipe) -> None:
        """Refuse to continue a run of another recipe."""
        before = read_if_there(RECIPE, self.path)
        if before is None:
            if (self.path / SEARCH.name).exists():
                raise RecipeError(f"{self.path} holds what cafenet.search found, no run; give another --output")
            return
        now = as_document(recipe)
        missing = [key for key in now if key not in before]
        if missing:  # a truncated YAML file is often valid YAML
            raise RunFileError(
                f"{self.path / RECIPE.name} must hold {RECIPE.holds}, but it has no {', '.join(missing)}; "
                f"{RECIPE.remedy}"
            )
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
            self._write_manifest({"finished": None})

    def _write_manifest(self, changes: dict[str, Any]) -> None:
        """Write changes into the manifest, or a new manifest."""
        is_there = self._manifest_path.exists()
        manifest = self._manifest()
        if changes or not is_there or not self._manifest_path.exists():  # a damaged manifest was put aside
            write_json(self._manifest_path, manifest | changes)

    def _manifest(self) -> dict[str, Any]:
        """Return the manifest so far, or a new one if there is none or it is damaged; a damaged one is put aside."""
        if self._manifest_path.exists():
            try:
                found: dict[str, Any] = read_file(MANIFEST, self.path)
                return found
            except RunFileError as error:
                aside = put_aside(self._manifest_path)
                problem = str(error).partition("; ")[0]
                _log.warning("%s; a new one is written, and the damaged one kept as %s", problem, aside.name)
        return {
            "format": "cafenet-run",
            "format_version": FORMAT_VERSION,
            "started": _now(),
            "finished": None,
            "stopped": None,
            "command": self._command,
            "seed": self._recipe.seed,
            "recipe": self._recipe_digest,
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


def _take_over_seeds(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether `now` only adds seeds of final trainings to `before`, which is the same run; then make
    both equal."""
    old, new = (document.get("finetune", document) for document in (before, now))
    if not isinstance(old, dict) or not set(old.get("seeds", ())) < set(new.get("seeds", ())):
        return False
    old["seeds"] = new["seeds"]
    return True


def _versions() -> dict[str, str]:
    """Return the versions of the installed packages that matter."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _git_revision() -> str | None:
    """Return the revision of the working directory, with + if files differ from it, or None outside a repository."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
        changed = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "") if head.returncode == 0 else None


def _now() -> str:
    """Return the time in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
