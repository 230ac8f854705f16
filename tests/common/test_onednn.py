"""Kernels of many shapes are compiled once."""

import os
import subprocess
import sys

import pytest
import torch

PROGRAM = """
import sys
import torch
import cafenet
torch.set_num_threads(1)
for turn in range(2):
    print("turn", turn, flush=True)
    for before in range(1, 36):
        for after in range(1, 36):
            torch.conv2d(torch.ones(16, before, 5, 5), torch.ones(after, before, 3, 3))
"""


def _compiled_in_second_turn(**environment: str) -> int:
    """Of 35 x 35 = 1,225 shapes, more than oneDNN keeps by itself."""
    variables = {name: value for name, value in os.environ.items() if "PRIMITIVE_CACHE" not in name}
    variables |= {"ONEDNN_VERBOSE": "2", **environment}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, check=True)
    second = ran.stdout.split("turn 1")[1]
    assert "convolution" in second
    return sum("cache_miss" in line and "convolution" in line for line in second.splitlines())


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_a_shape_is_compiled_once() -> None:
    assert _compiled_in_second_turn() == 0


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_a_users_own_number_holds() -> None:
    assert _compiled_in_second_turn(ONEDNN_PRIMITIVE_CACHE_CAPACITY="100") > 1000
    assert _compiled_in_second_turn(DNNL_PRIMITIVE_CACHE_CAPACITY="100") > 1000
