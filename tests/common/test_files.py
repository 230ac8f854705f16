"""Files in one move: the old one or the new one, brought to the disk before and after the rename."""

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cafenet.common.files import copy_directory, put_aside, write_bytes, write_json, write_text, write_torch

WRITERS = {
    "json": lambda path: write_json(path, {"a": 1}),
    "text": lambda path: write_text(path, "ä"),
    "bytes": lambda path: write_bytes(path, b"\x00"),
    "torch": lambda path: write_torch(path, {"weights": torch.arange(3)}),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_the_file_is_synced_before_the_rename_and_the_directory_after(kind, tmp_path, monkeypatch):
    """A power cut after the rename would else leave the new name with nothing in it."""
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted(descriptor):
        place = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        done.append("directory" if place.is_dir() else f"{place.suffix[1:]} of {place.stat().st_size > 0}")
        fsync(descriptor)

    def noted_replace(self, target):
        done.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "replace", noted_replace)
    WRITERS[kind](tmp_path / "new" / "file")
    assert done == ["tmp of True", "rename", "directory"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_write_that_fails_keeps_the_old_file_and_names_it(kind, tmp_path):
    """RLIMIT_FSIZE is a disk without room; PyTorch would say `iostream error` or `unexpected pos`."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            WRITERS[kind](path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_copied_directory_is_whole(tmp_path):
    (tmp_path / "a" / "deep").mkdir(parents=True)
    (tmp_path / "a" / "deep" / "x").write_text("x")
    copy_directory(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b" / "deep" / "x").read_text() == "x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_damaged_files_are_put_aside_one_after_the_other(tmp_path):
    for number in ("1", "2", "3"):
        (tmp_path / "x").write_text(number)
        put_aside(tmp_path / "x")
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"x.damaged": "1", "x.damaged-2": "2", "x.damaged-3": "3"}


WITHOUT_FCNTL = """
import sys
sys.modules["fcntl"] = None
import cafenet
from cafenet.common.locks import HAS_FLOCK
from cafenet.searching.store.journal_file import JournalFile
from pathlib import Path

assert not HAS_FLOCK
journal = JournalFile(Path(sys.argv[1]))
for number in range(40):
    log = {"op_code": 3, "worker_id": sys.argv[2], "study_id": 0, "system_attr": {"n": str(number) * 3000}}
    journal.append_logs([log])
print(len(list(journal.read_logs(0))))
"""


def test_without_fcntl_another_lock_keeps_writers_apart(tmp_path):
    """As on Windows: three processes append at once, each line begins at the end of the file, and none is lost."""
    path = tmp_path / "trials.journal"
    command = [sys.executable, "-c", WITHOUT_FCNTL, str(path)]
    processes = [subprocess.Popen([*command, f"w{number}"], stderr=subprocess.PIPE) for number in range(3)]
    errors = [process.communicate()[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], errors
    lines = path.read_bytes().splitlines()
    assert len(lines) == 120
    assert {len(line) for line in lines} <= {len(lines[0]), len(lines[0]) + 3000}  # numbers of two digits are longer
