"""The directory that a run or a search keeps: what was asked for, when and where it was done, and how long it took.

`cafenet run`, `cafenet.search` and `cafenet detect` write it through this module, so that a report reads all of them
alike.
"""

import logging
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from cafenet.common.files import put_aside, write_text
from cafenet.common.plain_values import digest_of_values
from cafenet.common.read_files import gone, read_file
from cafenet.common.run_files import MANIFEST, RECIPE
from cafenet.common.run_places import FORMAT_VERSION, JOURNAL, SUPERNET, expect_this_format
from cafenet.common.write_files import write_file
from cafenet.common.yaml_text import read_yaml
from cafenet.errors import CafeNetError, RunFileError

_log = logging.getLogger(__name__)

_PACKAGES = ("cafenet", "torch", "torchvision", "numpy", "scipy", "optuna", "jsonargparse")


@dataclass(frozen=True)
class Again:
    """Instructions to repeat the run, for readers of the report."""

    sentence: str
    """Advice that leads to the command, about the recipe."""
    command: str
    """The command or call; `{name}` stands for the name of the directory."""


class RunDirectory:
    """The directory that holds everything of one run or search."""

    def __init__(
        self, path: Path, *, seed: int, again: Again, command: list[str] | None = None, has_revision: bool = True
    ) -> None:
        """Describe the directory; nothing is written yet.

        Args:
            path: The directory.
            seed: Seed of the run.
            again: Instructions to repeat the run.
            command: The command line for the manifest, by default that of this process.
            has_revision: False leaves the git revision out, which may take long to find.

        Raises:
            RunFileError: If the directory holds files of another format.
        """
        expect_this_format(path)
        self._has_revision = has_revision
        self.path, self._seed, self._again = path, seed, again
        self._command = sys.argv if command is None else command
        self._manifest_path = path / MANIFEST.name

    def keep_recipe(self, text: str) -> None:
        """Write what was asked for, and its digest into the manifest.

        Args:
            text: The recipe as YAML.

        Raises:
            OSError: If the directory cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.path / RECIPE.name, text)
        self.note(recipe=digest_of_values(read_yaml(text, RECIPE.name)))

    def note_command(self) -> None:
        """Write this call and how it is repeated into the manifest, in place of those of an earlier call."""
        self.note(command=self._command, again=vars(self._again))

    def note(self, **values: Any) -> None:
        """Write values into the manifest, which is made if there is none.

        Args:
            **values: The values by their keys.
        """
        write_file(MANIFEST, self.path, self.manifest() | values)

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
                self._note_time(step, start, {"step": step, "reason": str(error) or type(error).__name__})
            raise
        self._note_time(step, start, None)

    def finish(self) -> None:
        """Record in the manifest that everything is done."""
        self.note(finished=_now())

    @property
    def _is_removed(self) -> bool:
        """True if somebody has removed the directory; writing a file into it may have created a part of it again."""
        return not (self.path / RECIPE.name).exists() and not self._manifest_path.exists()

    def _note_time(self, step: str, start: float, stopped: dict[str, str] | None) -> None:
        """Write the time of a step into the manifest."""
        if self._is_removed:
            raise gone(self.path)
        seconds = self.manifest()["seconds"]
        total = seconds.get(step, 0.0) + time.monotonic() - start
        self.note(seconds={**seconds, step: round(total, 3)}, stopped=stopped, journals=self._journal_sizes())

    def _journal_sizes(self) -> dict[str, int]:
        """Return the bytes of each journal, at least as many as before, because a journal only grows.

        A journal that ends at the end of a line is valid, so nothing else tells that its last trials are missing. One
        with a damaged copy beside it was mended, and may be smaller from then on.
        """
        sizes: dict[str, int] = dict(self.manifest().get("journals", {}))
        for journal in self.path.glob(f"{SUPERNET}*/**/{JOURNAL}"):
            name, is_mended = journal.relative_to(self.path).as_posix(), any(journal.parent.glob(f"{JOURNAL}.damaged*"))
            sizes[name] = max(journal.stat().st_size, 0 if is_mended else sizes.get(name, 0))
        return sizes

    def manifest(self) -> dict[str, Any]:
        """Return the manifest so far, or a new one if there is none or it is damaged; a damaged one is put aside.

        Returns:
            The content.
        """
        if self._manifest_path.exists():
            try:
                found: dict[str, Any] = read_file(MANIFEST, self.path)
                return found
            except RunFileError as error:
                aside = put_aside(self._manifest_path)
                problem = str(error).partition("; ")[0]
                _log.warning("%s; a new one is written, and the damaged one kept as %s", problem, aside.name)
        recipe = self.path / RECIPE.name
        return {
            "format": "cafenet-run",
            "format_version": FORMAT_VERSION,
            "started": _now(),
            "finished": None,
            "stopped": None,
            "command": self._command,
            "again": vars(self._again),
            "seed": self._seed,
            "recipe": digest_of_values(read_yaml(recipe.read_text(), recipe.name)) if recipe.exists() else None,
            "versions": {"python": platform.python_version(), **_versions()},
            "git_revision": _git_revision() if self._has_revision else None,
            "hardware": {
                "machine": platform.machine(),
                "system": platform.system(),
                "cpu_cores": os.cpu_count(),
                "threads": torch.get_num_threads(),
                "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
            },
            "seconds": {},
        }


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
