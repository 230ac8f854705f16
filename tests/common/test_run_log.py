"""The log of a run: one line a step, nothing that was not learned from, and what the user sees."""

import builtins
import json

import pytest

from cafenet.common.run_log import RunLog
from cafenet.errors import TrainingError


def steps(path) -> list[int]:
    return [json.loads(line)["step"] for line in (path / "log.jsonl").read_text().splitlines()]


def test_lines_after_the_checkpoint_and_torn_ones_are_dropped(tmp_path):
    run_log = RunLog(tmp_path, 10, title="run", quiet=True)
    run_log.start(0)
    for step in (1, 2, 3, 4):
        run_log.write(step, loss=1.0 / step)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')  # the process was killed here
    again = RunLog(tmp_path, 10, title="run", quiet=True)
    again.start(2)
    assert steps(tmp_path) == [1, 2]
    again.write(3, loss=0.5)
    assert steps(tmp_path) == [1, 2, 3]
    assert json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1]) == {"step": 3, "loss": 0.5}


def test_a_run_from_the_start_begins_a_new_log(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n{"step": 2}\n')
    RunLog(tmp_path, 10, title="run", quiet=True).start(0)
    assert steps(tmp_path) == []


def test_plain_lines_come_now_and_then_with_the_time_that_is_left(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("cafenet.common.run_log.time.monotonic", lambda: now[0])
    run_log = RunLog(None, 100, title="run")
    run_log.start(20)
    for step, time in ((21, 101.0), (30, 140.0), (31, 141.0), (100, 150.0)):
        now[0] = time
        run_log.show(step, "loss 1.0")
    run_log.close()
    # 10 steps in 40 s leave 70 steps for 280 s; the end is always told
    assert capsys.readouterr().err.splitlines() == [
        "run: goes on after step 20 of 100",
        "run: step 30/100, loss 1.0, 4.7 min left",
        "run: step 100/100, loss 1.0",
    ]


def test_tensorboard_that_is_missing_is_named(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "torch.utils.tensorboard":
            raise ImportError("No module named 'tensorboard'")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(TrainingError, match="tensorboard must be installed, but is not; run"):
        RunLog(tmp_path, 1, title="run", tensorboard=True)
