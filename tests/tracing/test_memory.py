"""Tracing a model takes no copy of its weights."""

import subprocess
import sys

import pytest

PROGRAM = """
import torch, cafenet
from pathlib import Path

def peak_mb():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024

def net(size):
    return torch.nn.Sequential(torch.nn.Linear(8, size), torch.nn.ReLU(), torch.nn.Linear(size, size),
                               torch.nn.ReLU(), torch.nn.Linear(size, 10))

x = torch.randn(1, 8)
cafenet.trace(net(16), x)       # imports and first calls
model = net(9000)               # 9000 x 9000 x 4 bytes = 309 MB
before = peak_mb()
cafenet.trace(model, x)
print(peak_mb() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
def test_no_copy_of_the_weights():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 30  # a copy would be 309 MB
