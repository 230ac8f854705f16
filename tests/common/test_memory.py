"""Freed memory is kept by the process, unless the user has set glibc's malloc."""

import os
import subprocess
import sys

import pytest

from cafenet.common import memory

PROGRAM = """
import resource
import torch
import cafenet
torch.set_num_threads(1)
def use():
    torch.zeros(2**24).add_(1)
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

needs_glibc = pytest.mark.skipif(not memory._is_glibc(), reason="only glibc's malloc can be told")


def _page_faults(**environment: str) -> int:
    """Of ten tensors of 64 MB, one after the other."""
    variables = {name: value for name, value in os.environ.items() if "MALLOC" not in name and "TUNABLES" not in name}
    variables |= {"OMP_NUM_THREADS": "1", **environment}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, check=True)
    return int(ran.stdout)


@needs_glibc
def test_memory_is_asked_for_once():
    given_back = _page_faults(MALLOC_MMAP_THRESHOLD_="131072")
    assert any(_page_faults() < given_back / 2 for _ in range(3)), "what else lies on the heap is chance"


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_a_users_own_setting_holds(monkeypatch, name):
    monkeypatch.setenv(name, "131072")
    assert not memory.keep_memory()


def test_tunables_are_a_users_own_setting(monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072")
    assert not memory.keep_memory()


@pytest.mark.parametrize("error", [ValueError, OSError, AttributeError])
def test_other_systems_are_left_alone(monkeypatch, error):
    def confstr(name: str) -> str:
        raise error

    monkeypatch.setattr(os, "confstr", confstr)
    monkeypatch.setattr(memory.ctypes, "CDLL", None)
    assert not memory.keep_memory()
