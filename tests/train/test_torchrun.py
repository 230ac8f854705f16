"""Two processes under torchrun do what one process does that accumulates their micro-batches."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small import built, log_of, supernet_of, trained

from cafenet.choice import Exact, Race


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """The directory with all that the two processes noted."""
    directory = tmp_path_factory.mktemp("torchrun")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    command += [str(Path(__file__).with_name("two_processes.py")), str(directory)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    launcher = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
    try:
        output, _ = launcher.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(launcher.pid, signal.SIGKILL)  # torchrun and what it started
        output, _ = launcher.communicate()
    assert launcher.returncode == 0, output[-4000:]
    return directory


def states(directory: Path, name: str) -> list[dict[str, torch.Tensor]]:
    """What each process had at the end."""
    return [torch.load(directory / f"{name}.{rank}.pt", weights_only=True) for rank in range(2)]


def assert_equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert [name for name in left if not torch.equal(left[name], right[name])] == []


@pytest.mark.parametrize("name", ["exact", "race", "other", "whole", "parts", "stopped"])
def test_both_processes_end_with_the_same_weights_and_statistics(results, name):
    assert_equal(*states(results, name))


@pytest.mark.parametrize(("name", "choice"), [("exact", Exact()), ("race", Race(chunk=0.25, min_examples=2))])
def test_equal_to_one_process_that_accumulates_the_same_shards(results, name, choice, tmp_path):
    alone = trained(supernet_of(built(dropout=0.0), choice=choice), tmp_path, epochs=2, accumulate=2)
    both = states(results, name)[0]
    lines, expected = log_of(results / name), log_of(tmp_path)
    assert [line["step"] for line in lines] == list(range(1, 9))  # 64 examples, 2 x 8 a step, 2 epochs
    chosen = [(line["candidate"], line["num_candidates"]) for line in lines]
    assert chosen == [(line["candidate"], line["num_candidates"]) for line in expected]
    assert {number for number, _ in chosen} != {0}
    assert [line["loss"] for line in lines] == pytest.approx([line["loss"] for line in expected], rel=1e-4)
    for name, parameter in alone.named_parameters():
        torch.testing.assert_close(both[name], parameter.detach(), rtol=1e-4, atol=1e-5)
    # the weights did move, by much more than that
    assert (both["model.one.weight"] - built().one.weight.detach()).abs().max() > 0.01


def test_all_processes_start_from_the_first_ones_weights_and_samples(results):
    assert_equal(states(results, "other")[0], states(results, "exact")[0])


def test_every_process_draws_dropout_masks_of_its_own(results):
    one, two = (torch.load(results / f"random.{rank}.pt", weights_only=True) for rank in range(2))
    assert not torch.equal(one, two)


def test_resumed_equals_uninterrupted_with_dropout_in_both_processes(results):
    assert_equal(states(results, "parts")[0], states(results, "whole")[0])


def test_a_signal_to_one_process_stops_both_with_a_checkpoint(results):
    # the 20th example of a process is read for step 3
    messages = [(results / f"stopped.{rank}.txt").read_text() for rank in range(2)]
    assert messages[0] == "stopped by another process after step 3; start again to continue"
    assert messages[1] == "stopped by SIGTERM after step 3; start again to continue"
    assert_equal(states(results, "stopped")[0], states(results, "whole")[0])
