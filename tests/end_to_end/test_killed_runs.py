"""kill -9 at any moment of a run, and a full disk: the same command goes on, to the same end."""

import json
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from cafenet.cli.main import main
from tests.helpers.tiny_run import recipe_file, run
from tests.helpers.tiny_run import without_latency as timeless

PRELOADED = [
    "cafenet.cli.main",
    "cafenet.report.run_page",
    "cafenet.runs.run_recipe",
    "cafenet.searching.store.trials",
    "pytest",
    "rich.progress",
    "scipy.optimize",
    "torch._dynamo",
]


def start(arguments: list[str], output: str, limit: int | None = None) -> None:
    """What another process does: the command, with its words in a file and perhaps a limit on the size of files."""
    torch.set_num_threads(1)
    file = os.open(output, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    if limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.exit(main(arguments))


def started(recipe: Path, directory: Path, *flags: str, limit: int | None = None) -> multiprocessing.Process:
    """A process of its own; what it imports is imported once for all."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    arguments = ["run", str(recipe), "--output", str(directory), "--quiet", *flags]
    process = context.Process(target=start, args=(arguments, str(directory.parent / "said"), limit))
    process.start()
    return process


def test_killed_at_five_random_moments(tmp_path):
    """Moments are counted in files and lines that the run has written, drawn over all that a whole run writes."""
    flags = ["--baselines.random_widths=2", "--baselines.random_epochs=1", "--stages.num_stages=2"]
    flags += ["--baselines.fixed=false"]
    recipe = recipe_file(tmp_path)
    expected = timeless(run(recipe, tmp_path / "whole", *flags))
    moments = sorted(random.SystemRandom().sample(range(2, progress(tmp_path / "whole") - 2), 5))
    print(f"killed at {moments}")  # shown when the test fails
    for moment in moments:
        process = started(recipe, tmp_path / "run", *flags)
        until = time.monotonic() + 120
        while progress(tmp_path / "run") < moment and process.is_alive():
            assert time.monotonic() < until
            time.sleep(0.001)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, (tmp_path / "said").read_text()
    assert timeless(run(recipe, tmp_path / "run", *flags)) == expected
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["finished"] is not None


def progress(directory: Path) -> int:
    """How far a run is: steps that it has logged, widths that it has scored, files that it has."""
    try:
        files = [path for path in directory.rglob("*") if path.is_file() and not path.name.endswith(".tmp")]
        lines = [path.read_bytes().count(b"\n") for path in files if path.suffix in (".jsonl", ".journal")]
    except FileNotFoundError:  # renamed while we looked
        return 0
    return len(files) + sum(lines)


@pytest.mark.parametrize(
    ("limit", "flags", "message"),
    [
        (300, [], "error: the run directory .*run must be writable, but: File too large; give another --output"),
        (
            9_000,
            [],
            "error: the checkpoint .*supernet.pt cannot be written: File too large; the last one is kept",
        ),
        (
            5_000,
            ["--train.epochs=10", "--train.checkpoint_every=100"],
            "error: the disk must have room, but: .*File too large.*; what was written before is kept",
        ),
    ],
    ids=["recipe", "checkpoint", "log"],
)
def test_a_full_disk_ends_in_one_line_and_loses_nothing(limit, flags, message, tmp_path, finished):
    recipe = recipe_file(tmp_path)
    process = started(recipe, tmp_path / "run", *flags, limit=limit)
    process.join()
    said = (tmp_path / "said").read_text()
    assert process.exitcode == 2, said
    (line,) = said.splitlines()
    assert re.fullmatch(message, line)
    assert list(tmp_path.rglob("*.tmp")) == []
    if limit == 9_000:
        expected = json.loads((finished / "results.json").read_text())
        assert timeless(run(recipe, tmp_path / "run")) == timeless(expected)


def test_a_disk_that_fills_up_later_keeps_what_was_done(tmp_path, finished):
    """Room for the checkpoints of the narrow networks and of the search, none for the widest final model's."""
    recipe = recipe_file(tmp_path)
    run(recipe, tmp_path / "run", step="search")
    done = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.json") if path.name.startswith("result-")}
    process = started(recipe, tmp_path / "run", limit=20_000)
    process.join()
    said = (tmp_path / "said").read_text()
    assert process.exitcode == 2, said
    assert "models/original/seed-0/model.pt cannot be written: File too large" in said
    assert {path: path.read_bytes() for path in done} == done
    assert timeless(run(recipe, tmp_path / "run")) == timeless(json.loads((finished / "results.json").read_text()))
