"""Supernets trained on several hosts without a shared disk, each in a network namespace of its own."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.helpers.hosts import Network, finish, missing, network, wait_for
from tests.helpers.small_training import built, supernet_of, trained

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
SCRIPT = Path(__file__).with_name("on_hosts.py")
STEPS = 16  # 64 examples, 24 a step, 8 epochs


def job(net: Network, hosts: list[int], place: Path, max_steps: int = 0, port: int = 29400, seconds: float = 0.0):
    """Start the job on some hosts; the first one is where they meet."""
    logs = [place / f"{port}-{host}.log" for host in hosts]
    arguments = (str(place), str(max_steps), str(seconds))
    started = [
        net.torchrun(
            host,
            SCRIPT,
            *arguments,
            nodes=f"2:{len(hosts)}" if seconds else str(len(hosts)),
            log=log,
            endpoint=hosts[0],
            port=port,
        )
        for host, log in zip(hosts, logs, strict=True)
    ]
    return started, logs


def step_of(place: Path, host: int) -> int:
    path = place / f"host{host}" / "training" / "supernet.pt"
    return int(torch.load(path, weights_only=True)["step"]) if path.exists() else 0


def ends(place: Path, hosts: list[int]):
    return [torch.load(place / f"host{host}" / "end.pt", weights_only=True) for host in hosts]


def chosen(place: Path, host: int):
    """How often each candidate was the best, which the checkpoint counts."""
    return torch.load(place / f"host{host}" / "training" / "supernet.pt", weights_only=True)["chosen"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same training in one process: its weights and the candidates that it chose.

    Running statistics are left out: they are averaged over processes, and one process follows its micro-batches.
    """
    place = tmp_path_factory.mktemp("alone")
    supernet = trained(
        supernet_of(built(dropout=0.0)), place, epochs=8, batch_size=4, examples_per_step=24, checkpoint_every=1
    )
    saved = torch.load(place / "supernet.pt", weights_only=True)
    parameters = {name: each.detach() for name, each in supernet.named_parameters()}
    return parameters, saved["chosen"]


def assert_as(expected, found) -> None:
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-4, msg=name)


def test_two_hosts_without_a_shared_disk_and_one_of_them_goes_on_alone(alone, tmp_path):
    """Both keep the checkpoint, so that either may be lost; fewer processes take the same steps."""
    with network(2) as net:
        finish(*job(net, [0, 1], tmp_path, max_steps=6), seconds=600)
        assert [step_of(tmp_path, host) for host in (0, 1)] == [6, 6]
        shutil.rmtree(tmp_path / "host0")  # the first process's host is lost, with its disk
        finish(*job(net, [1], tmp_path, port=29401), seconds=600)
    assert step_of(tmp_path, 1) == STEPS
    assert chosen(tmp_path, 1) == alone[1]
    assert_as(alone[0], ends(tmp_path, [1])[0])


@pytest.mark.slow
def test_a_host_is_killed_and_the_job_goes_on_with_fewer_and_then_with_more(alone, tmp_path):
    with network(3) as net:
        job(net, [0, 1, 2], tmp_path, seconds=0.02)
        wait_for(lambda: step_of(tmp_path, 0) >= 3, 600, "the third step")
        net.kill(2)
        before = step_of(tmp_path, 0)
        wait_for(lambda: step_of(tmp_path, 0) >= before + 2, 600, "going on with two hosts")
        for host in (0, 1):
            net.kill(host)
        at = step_of(tmp_path, 0)
        assert at < STEPS
        assert step_of(tmp_path, 2) < at  # an older checkpoint, on the host that is the first from now on
        finish(*job(net, [2, 1, 0], tmp_path, port=29402), seconds=900)
    assert [step_of(tmp_path, host) for host in (0, 1, 2)] == [STEPS] * 3
    assert [chosen(tmp_path, host) for host in (0, 1, 2)] == [alone[1]] * 3
    for found in ends(tmp_path, [0, 1, 2]):
        assert_as(alone[0], found)
