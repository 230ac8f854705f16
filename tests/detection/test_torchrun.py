"""Two processes under torchrun, stopped and continued, learn what one learns that accumulates their micro-batches."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.detection.two_processes import CONFIG, trained


@pytest.mark.slow
def test_two_processes_equal_one_that_accumulates(tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    command += [str(Path(__file__).with_name("two_processes.py")), str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    alone = trained(tmp_path / "alone", replace(CONFIG, accumulate=2)).state_dict()
    for name, tensor in alone.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], tensor, rtol=1e-4, atol=1e-6)
    lines = [json.loads(line) for line in (tmp_path / "disk-0" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert not (tmp_path / "disk-1").exists()  # one process writes, and what it wrote serves all after a stop
    assert lines[0]["lr"] == 0.08 * 4 / 256
