"""kill -9 in the middle of a library's training: its checkpoint continues to the same choices and weights."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.integrations import killed


@pytest.mark.slow
@pytest.mark.parametrize("name", killed.LOOPS)
def test_a_training_that_was_killed_ends_as_one_that_was_not(tmp_path: Path, name: str):
    pytest.importorskip("accelerate" if name == "trainer" else name)
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    parts.mkdir()
    command = [sys.executable, "-m", "tests.integrations.killed", name, str(parts)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    done = [json.loads(line) for line in (parts / "choices").read_text().splitlines()]
    assert len(done) == killed.KILLED_AT - 1

    uninterrupted = killed.LOOPS[name](whole, killed.fresh(name), False)
    # another seed, so that what continues the sampling can only be the checkpoint
    resumed = killed.LOOPS[name](parts, killed.fresh(name, seed=9), True)
    expected = [[counts, candidate] for counts, candidate in uninterrupted.choices]
    rest = [[counts, candidate] for counts, candidate in resumed.choices]
    assert done == expected[: len(done)]
    assert rest == expected[killed.SAVED_AT[name] :]
    assert all(torch.equal(value, resumed.weights()[key]) for key, value in uninterrupted.weights().items())
