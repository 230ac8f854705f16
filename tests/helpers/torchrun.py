"""Starting a script of a test in two processes under torchrun."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path


def under_torchrun(script: Path, directory: Path, timeout: float = 180) -> None:
    """Both processes note their results in the directory."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(_free_port()), str(script), str(directory)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    launcher = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
    try:
        output, _ = launcher.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(launcher.pid, signal.SIGKILL)  # torchrun and what it started
        output, _ = launcher.communicate()
    assert launcher.returncode == 0, output[-4000:]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
