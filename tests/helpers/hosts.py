"""Hosts of a test: network namespaces with addresses of their own, joined by a switch in one more namespace.

Nothing reaches the machine's own network. Processes of a host see its own host name, so that they do not take those of
another one for their own.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def missing() -> str | None:
    """Why there can be no hosts here, or None."""
    for tool in ("ip", "unshare"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (Debian's iproute2 and util-linux)"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    name = f"cafe{os.getpid()}try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "network namespaces are not allowed here"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


def _ip(*arguments: str, at: str | None = None) -> str:
    """Run ip, in a namespace if asked."""
    command = ["ip", *(("-n", at) if at else ()), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


class Network:
    """Some hosts on one switch."""

    def __init__(self, num_hosts: int) -> None:
        self._name = f"cafe{os.getpid()}"
        self._switch = f"{self._name}s"
        self.hosts = range(num_hosts)
        self.started: list[subprocess.Popen[str]] = []

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def make(self) -> None:
        _ip("netns", "add", self._switch)
        _ip("link", "add", "switch", "type", "bridge", at=self._switch)
        _ip("link", "set", "switch", "up", at=self._switch)
        for host in self.hosts:
            name, port = self.namespace(host), f"port{host}"
            _ip("netns", "add", name)
            _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name, at=self._switch)
            _ip("link", "set", port, "master", "switch", "up", at=self._switch)
            _ip("address", "add", f"{self.address(host)}/24", "dev", "eth0", at=name)
            known = Path("/etc/netns", name)  # `ip netns exec` shows it as /etc
            known.mkdir(parents=True)
            names = [f"{self.address(each)} host{each}" for each in self.hosts]
            (known / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
            for device in ("lo", "eth0"):
                _ip("link", "set", device, "up", at=name)

    def remove(self) -> None:
        for host in self.hosts:
            self.kill(host)
        for process in self.started:
            process.wait(timeout=30)
        for name in (*(self.namespace(host) for host in self.hosts), self._switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            shutil.rmtree(Path("/etc/netns", name), ignore_errors=True)

    def namespace(self, host: int) -> str:
        return f"{self._name}h{host}"

    def start(self, host: int, *command: str, log: Path, **environment: str) -> "subprocess.Popen[str]":
        """A process on a host; its output goes to a file."""
        own = {"GLOO_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
        shell = 'hostname "$0"; exec "$@"'
        inside = ["unshare", "--uts", "--", "sh", "-c", shell, f"host{host}", *command]
        options: dict[str, Any] = {"stdout": log.open("w"), "stderr": subprocess.STDOUT, "text": True}
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace(host), *inside],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **own, **environment},
            **options,
        )
        self.started.append(process)
        return process

    def python(self, host: int, *arguments: str, log: Path, **environment: str) -> "subprocess.Popen[str]":
        return self.start(host, sys.executable, *arguments, log=log, **environment)

    def torchrun(
        self, host: int, script: Path, *arguments: str, nodes: str, log: Path, endpoint: int = 0, port: int = 29400
    ) -> "subprocess.Popen[str]":
        """Start the job's part on one host; they meet at the host `endpoint`."""
        conf = "last_call_timeout=10,keep_alive_interval=3,keep_alive_max_attempt=6,join_timeout=600"
        options = ["--nnodes", nodes, "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-conf", conf]
        options += ["--rdzv-endpoint", f"{self.address(endpoint)}:{port}", "--rdzv-id", "job"]
        options += ["--local-addr", self.address(host), "--max-restarts", "3", "--monitor-interval", "0.2"]
        return self.python(host, "-m", "torch.distributed.run", *options, str(script), *arguments, log=log)

    def kill(self, host: int) -> None:
        """All processes of a host end at once, as if its power were cut."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.namespace(host)], capture_output=True, text=True, check=False
        )
        for pid in listed.stdout.split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue

    def cut(self, host: int) -> None:
        """Nothing reaches a host, and nothing comes from it; nobody is told."""
        _ip("link", "set", f"port{host}", "nomaster", at=self._switch)

    def mend(self, host: int) -> None:
        """The host is on the network again."""
        _ip("link", "set", f"port{host}", "master", "switch", at=self._switch)


@contextmanager
def network(num_hosts: int) -> Iterator[Network]:
    """Hosts while the context lasts; all of their processes end with it."""
    net = Network(num_hosts)
    try:
        net.make()
        yield net
    finally:
        net.remove()


def finish(processes: Sequence["subprocess.Popen[str]"], logs: Sequence[Path], seconds: float) -> None:
    """Wait until all processes have ended well."""
    until = time.monotonic() + seconds
    for process in processes:
        try:
            process.wait(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            break
    codes = [process.poll() for process in processes]
    assert codes == [0] * len(processes), "\n".join([str(codes), *(log.read_text()[-3000:] for log in logs)])


def wait_for(condition: Any, seconds: float, what: str) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what} did not happen within {seconds} seconds"
        time.sleep(0.02)
