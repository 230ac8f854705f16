"""Loggers get the events of a search; one that is not there is refused first, one that fails stops nothing."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import cafenet
from cafenet.cli.main import main
from cafenet.common.events import current_loggers, logging_to
from cafenet.common.loggers import loggers_of
from cafenet.errors import CafeNetWarning, TrainingError
from tests.helpers.small_search import TRAIN, VALIDATION
from tests.helpers.small_training import built

FEW = cafenet.SearchOptions(algorithm=cafenet.RandomSearch(samples=4), num_finalists=1)


class Noting:
    """Notes every event."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def stage(self, *values: Any) -> None:
        self.events.append(("stage", *values))

    def step(self, *values: Any) -> None:
        self.events.append(("step", *values))

    def trial(self, *values: Any) -> None:
        self.events.append(("trial", *values))

    def result(self, *values: Any) -> None:
        self.events.append(("result", *values))

    def close(self) -> None:
        self.events.append(("close",))


class Failing(Noting):
    """Fails at the second step."""

    def step(self, *values: Any) -> None:
        super().step(*values)
        if len([each for each in self.events if each[0] == "step"]) == 2:
            raise OSError("the server has gone\nand more")


def searched(*loggers: Any, quiet: bool = True) -> cafenet.SearchResult:
    torch.manual_seed(0)
    train = cafenet.TrainConfig(epochs=2, batch_size=32, log_every=1)
    options = {"options": FEW, "finetune": False, "baseline": False, "trained": False, "quiet": quiet}
    return cafenet.search(built(), TRAIN, VALIDATION, "50%", train=train, loggers=loggers, **options)


def test_a_search_is_stages_steps_trials_and_a_result_and_a_failing_logger_changes_nothing():
    noting, failing = Noting(), Failing()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = searched(failing, noting)
    kinds = [event[0] for event in noting.events]
    assert kinds[0] == "stage"
    assert kinds[-2:] == ["result", "close"]
    assert kinds.count("close") == 1
    # 96 examples by 32 are 3 steps an epoch, 2 epochs
    assert kinds.count("step") == 6
    assert kinds.count("trial") >= 4
    (final,) = [event for event in noting.events if event[0] == "result"]
    assert final == ("result", "50%", {"score": result.score, **result.costs})
    said = [str(each.message) for each in caught if issubclass(each.category, CafeNetWarning) and "logger" in str(each)]
    assert said == [
        "the logger Failing failed at `step` and gets no more events, the work goes on: OSError: the server has gone"
    ]
    assert [event[0] for event in failing.events].count("step") == 2  # and not even a close after it
    assert failing.events[-1][0] == "step"
    assert searched().widths == result.widths  # logging is not part of what is done


def test_the_steps_that_a_plan_times_are_not_events():
    quietly, aloud = Noting(), Noting()
    searched(quietly)
    searched(aloud, quiet=False)
    assert [event[:3] for event in aloud.events] == [event[:3] for event in quietly.events]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["comet:x"], r"must be one of jsonl:PATH, tensorboard:PATH, mlflow:PATH, wandb:PATH, but is 'comet:x'"),
        (["jsonl"], r"but is 'jsonl'"),
        ("jsonl:x", r"loggers must be a list"),
        ([Noting], r"is a class; write it with \(\)"),
        ([object()], r"has no stage"),
    ],
)
def test_what_is_no_logger_is_refused(asked, message):
    with pytest.raises(TrainingError, match=message), logging_to(loggers_of(asked)):
        pass


@pytest.mark.parametrize("command", ["slim net.py:Net --data fashion", "run demo"])
def test_a_wrong_name_on_the_command_line_is_refused_before_anything_is_read(command, capsys):
    assert main([*command.split(), "--log", "wandb"]) == 2
    assert capsys.readouterr().err.startswith("error: a logger must be one of jsonl:PATH, ")


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("tensorboard", "torch.utils.tensorboard", "board"), ("mlflow", "mlflow", "mlflow"), ("wandb", "wandb", "wandb")],
)
def test_a_logger_that_is_not_installed_is_refused_before_the_work(tmp_path, monkeypatch, name, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TrainingError, match=rf"{name} must be installed, .*cafenet\[{extra}\]"):
        searched(f"{name}:{tmp_path}")


def test_only_the_first_process_logs(monkeypatch):
    noting = Noting()
    monkeypatch.setenv("RANK", "1")
    with logging_to([noting]):
        current_loggers().stage("one", 1)
    assert noting.events == []


def send(name: str) -> None:
    """The events of a short search."""
    with logging_to(loggers_of([name])):
        current_loggers().stage("search 50%", 2)
        current_loggers().step("supernet", 3, {"loss": 0.5, "note": "no number"})
        current_loggers().trial("search 50%", 1, {"score": 0.25})
        current_loggers().result("50%", {"flops": 7})


def test_lines_of_json(tmp_path: Path):
    send(f"jsonl:{tmp_path}/new/log.jsonl")
    assert [json.loads(line) for line in (tmp_path / "new" / "log.jsonl").read_text().splitlines()] == [
        {"event": "stage", "stage": "search 50%", "total": 2},
        {"event": "step", "stage": "supernet", "number": 3, "loss": 0.5},
        {"event": "trial", "stage": "search 50%", "number": 1, "score": 0.25},
        {"event": "result", "budget": "50%", "flops": 7.0},
    ]


def test_mlflow_reads_back_what_was_logged(tmp_path: Path):
    mlflow = pytest.importorskip("mlflow")
    send(f"mlflow:{tmp_path}/runs")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/runs/mlflow.db")
    experiment = client.get_experiment_by_name("cafenet")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["search 50 percent/score"] == 0.25
    assert run.data.metrics["result 50 percent/flops"] == 7.0
    ((step, value),) = [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, "supernet/loss")]
    assert (step, value) == (3, 0.5)


def test_tensorboard_reads_back_what_was_logged(tmp_path: Path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    send(f"tensorboard:{tmp_path}")
    read = accumulators.EventAccumulator(str(tmp_path))
    read.Reload()
    assert [(each.step, each.value) for each in read.Scalars("supernet/loss")] == [(3, 0.5)]


def test_wandb_reads_back_what_was_logged(tmp_path: Path, monkeypatch):
    pytest.importorskip("wandb")
    from tests.helpers.wandb_file import logged_in

    monkeypatch.delenv("WANDB_MODE", raising=False)
    send(f"wandb:{tmp_path}/runs")
    logged = logged_in(tmp_path / "runs")
    assert logged.project == "cafenet"
    assert logged.is_offline
    assert logged.is_finished
    assert logged.rows == [
        {"supernet/number": 3, "supernet/loss": 0.5},
        {"search 50%/number": 1, "search 50%/score": 0.25},
    ]
    assert logged.drawn_over == {"supernet/*": "supernet/number", "search 50%/*": "search 50%/number"}
    assert logged.summary["search 50%/total"] == 2
    assert logged.summary["result 50%/flops"] == 7.0
    assert not logged.printed  # what a command prints is not for a server


WITHOUT_SERVICE = """
import os, pathlib, sys, time, warnings
from cafenet.common.events import current_loggers, logging_to
from cafenet.common.loggers import loggers_of

warnings.simplefilter("always")
with logging_to(loggers_of([f"wandb:{sys.argv[1]}", f"jsonl:{sys.argv[1]}/events"])):
    current_loggers().step("supernet", 1, {"loss": 1.0})
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert children
    for child in children:
        os.kill(int(child), 9)
    for number in range(2, 22):
        time.sleep(0.05)
        current_loggers().step("supernet", number, {"loss": 1.0})
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the service of wandb is found in /proc")
def test_a_service_of_wandb_that_is_killed_is_one_warning_and_the_work_goes_on(tmp_path: Path):
    pytest.importorskip("wandb")
    command = [sys.executable, "-c", WITHOUT_SERVICE, str(tmp_path)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}  # no service of ours
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)
    assert ended.returncode == 0, ended.stderr
    (said,) = [line for line in ended.stderr.splitlines() if "CafeNetWarning" in line]
    assert "the logger _WandbLogger failed at `step` and gets no more events, the work goes on" in said
    assert len((tmp_path / "events").read_text().splitlines()) == 21
