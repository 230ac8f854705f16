"""Ctrl-C and SIGTERM end the command in one line, from its first moment on; helpers end with it, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cafenet.cli.main import main
from cafenet.common import interrupts
from cafenet.common.interrupts import Stopped, stoppable_command
from cafenet.data import eval_loader, load_data

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
SCRIPT = """\
import sys
from cafenet.cli.main import main
if __name__ == '__main__':
    sys.exit(main())
"""


def command(kind: str, place: Path) -> list[str]:
    """The command as a module, or as the script that pip writes."""
    if kind == "module":
        return [sys.executable, "-m", "cafenet"]
    (place / "cafenet").write_text(SCRIPT)
    return [sys.executable, str(place / "cafenet")]


STOP = """\
import os, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), {number})
                [None for _ in range(10)]  # here the signal is handled
            except BaseException:
                pass

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("kind", ["module", "script"])
@pytest.mark.parametrize("module", ["cafenet.cli", "torch"])
def test_a_stop_while_the_command_imports_is_one_line(module, kind, number, tmp_path):
    """The signal comes while the flags are declared, or when the command imports what it needs, in code that would
    swallow an exception, as libraries do that can go without some other."""
    (tmp_path / "sitecustomize.py").write_text(STOP.format(module=module, number=int(number)))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command(kind, tmp_path), "inspect", "cafenet:none"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.stderr == "stopped: what is done is kept; the same command continues\n"
    assert (done.returncode, done.stdout) == (CODES[number], "")


ENDING = """\
import os, signal, time

class Late:
    def __del__(self, kill=os.kill, this=os.getpid(), write=os.write, sleep=time.sleep):
        write(2, b"ending\\n")
        kill(this, {number})
        sleep(0.01)

late = Late()
"""


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("kind", ["module", "script"])
def test_a_stop_while_the_interpreter_ends_does_not_undo_the_end(kind, number, tmp_path):
    """Everything is done and said: Python has given up its handlers, and is taking its modules down, which takes long
    with torch. The exit code is that of the command."""
    (tmp_path / "sitecustomize.py").write_text(ENDING.format(number=int(number)))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    for arguments, code in ((["recipes"], 0), (["run", "no-such-recipe"], 2)):
        done = subprocess.run(
            [*command(kind, tmp_path), *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert done.stderr.endswith("ending\n")
        assert done.returncode == code


@pytest.mark.parametrize("number", CODES)
def test_a_stop_in_the_middle_of_a_command(number, monkeypatch, capsys):
    def stopped(args):
        signal.raise_signal(number)

    before = [signal.getsignal(each) for each in CODES]
    monkeypatch.setattr("cafenet.cli.recipes._recipes", stopped)
    assert main(["recipes"]) == CODES[number]
    assert capsys.readouterr().err == "stopped: what is done is kept; the same command continues\n"
    assert [signal.getsignal(each) for each in CODES] == before


def test_a_second_signal_ends_at_once(monkeypatch):
    def leave(number, frame):
        raise SystemExit(128 + number)

    monkeypatch.setattr(interrupts, "_leave", leave)
    with stoppable_command():
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(SystemExit, match="143"):
            signal.raise_signal(signal.SIGTERM)


def test_a_program_that_imports_the_package_keeps_its_signals():
    code = "import signal, cafenet; print(signal.getsignal(2) is signal.default_int_handler, signal.getsignal(15) == 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True True\n", done.stderr


SEARCH = """\
import os, sys, time

if __name__ == "__mp_main__":  # a helper that imports for long
    open(os.environ["TEST_HELPER"], "w").write(str(os.getpid()))
    time.sleep(60)

if __name__ == "__main__":
    from pathlib import Path

    from cafenet.searching import workers

    class Search: ...

    workers._save = lambda search, path: path.touch()
    with workers.local_workers(Search(), "50%", None, "widths", 2):
        time.sleep(60)
"""

LOADER = """\
import os, sys, time
from torch.utils.data import Dataset
from cafenet.training.batch_feed import Feed

class Slow(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index != 5:
            open(os.environ["TEST_HELPER"], "w").write(str(os.getpid()))
            time.sleep(60)
        return 0, 0

if __name__ == "__main__":
    for batch in Feed(Slow(), batch_size=4, num_workers=1).epoch(0):
        pass
"""


@pytest.mark.parametrize("script", [SEARCH, LOADER], ids=["search", "loader"])
def test_helpers_end_within_two_seconds_of_a_killed_parent(script, tmp_path):
    """kill -9 leaves the parent no time to end them: while a helper imports, or while it reads an example."""
    (tmp_path / "main.py").write_text(script)
    note = tmp_path / "helper"
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "main.py")], env={**os.environ, "TEST_HELPER": str(note)}
    )
    until = time.monotonic() + 60
    while not (note.exists() and note.read_text()):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    process.kill()
    process.wait()
    killed = time.monotonic()
    while is_running(int(note.read_text())):
        assert time.monotonic() < killed + 2, "the helper runs on"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_loaders_of_the_package_start_their_workers_so():
    assert eval_loader(load_data("fashion").test, num_workers=1).worker_init_fn is not None
