"""Devices that answer, answer nonsense, answer late, die, and come back."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import cafenet
from cafenet.errors import BudgetError, DeploymentError
from cafenet.searching.latency.estimate import fit_latency
from cafenet.searching.latency.measure import LatencyConfig, measure_latency
from cafenet.space.bins import uniform_bins

IMAGE = torch.zeros(1, 3, 4, 4)


def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 6, 1), nn.Conv2d(6, 2, 1))


def command(tmp_path: Path, code: str) -> str:
    """A command that runs Python code with the exported file as `file`."""
    script = tmp_path / "device.py"
    script.write_text(f"import sys, pathlib, time\nfile = pathlib.Path(sys.argv[1])\n{code}\n")
    return f"command:pt2 {sys.executable} {script} {{file}}"


def test_the_last_line_of_a_command_is_the_latency(tmp_path):
    runtime = command(
        tmp_path, "assert file.suffix == '.pt2' and file.stat().st_size\nprint('hello')\nprint('1.25 ms')"
    )
    assert measure_latency(net(), IMAGE, LatencyConfig(runtime=runtime)) == 1.25


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("print('fast')", "it answered 'fast'"),
        ("print(-1)", "it answered '-1'"),
        ("print('nan')", "it answered 'nan'"),
        ("", "it answered ''"),
        ("sys.exit('no device')", "it ended with code 1: no device"),
        ("time.sleep(60)", "it gave no answer in 0.5 s"),
    ],
)
def test_what_is_no_answer_is_one_line(code, problem, tmp_path):
    settings = LatencyConfig(runtime=command(tmp_path, code), retries=1, timeout_seconds=0.5 if "sleep" in code else 60)
    with pytest.raises(DeploymentError) as caught:
        measure_latency(net(), IMAGE, settings)
    assert f"must answer with milliseconds, but {problem} (2 times); see to the device" in str(caught.value)


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(DeploymentError, match="No such file or directory: 'nosuchprogram'"):
        measure_latency(net(), IMAGE, LatencyConfig(runtime="command:pt2 nosuchprogram {file}", retries=0))


class Phone:
    """A function that answers with the number of weights in the file's program, and fails when it is told to."""

    file_format = "pt2"

    def __init__(self):
        self.asked, self.dies_at, self.flaky = 0, None, False

    def __call__(self, file):
        self.asked += 1
        if self.dies_at is not None and self.asked >= self.dies_at:
            raise ConnectionError("the phone has gone")
        if self.flaky and self.asked % 2:
            return "busy"
        return float(sum(each.numel() for each in torch.export.load(file).state_dict.values()))


def test_a_question_is_asked_again():
    phone = Phone()
    phone.flaky = True
    assert measure_latency(net(), IMAGE, LatencyConfig(runtime=phone)) == sum(p.numel() for p in net().parameters())
    assert phone.asked == 2


def test_a_device_that_dies_in_the_middle_goes_on_where_it_was(tmp_path):
    space, phone = cafenet.trace(net(), IMAGE), Phone()
    bins = uniform_bins(space, 3)
    settings = LatencyConfig(runtime=phone, retries=0, cache=str(tmp_path / "phone.jsonl"))
    phone.dies_at = 4
    with pytest.raises(DeploymentError, match="the phone has gone"):
        fit_latency(space, bins, IMAGE, settings, num_measured=6)
    phone.dies_at = None
    model = fit_latency(space, bins, IMAGE, settings, num_measured=6)
    assert phone.asked == 4 + len(model.widths) - 3  # three were kept, the fourth was asked in vain
    assert model.latency_ms.tolist() == space.params(model.widths).tolist()
    assert model.full_ms == space.params()


def test_kept_latencies_belong_to_one_device_and_one_batch_size(tmp_path):
    phone, path = Phone(), str(tmp_path / "phone.jsonl")
    for settings in (LatencyConfig(runtime=phone, cache=path), LatencyConfig(runtime=phone, cache=path, batch_size=2)):
        measure_latency(net(), IMAGE, settings)
        measure_latency(net(), IMAGE, settings)
    assert phone.asked == 2
    measure_latency(net(), torch.zeros(1, 3, 5, 5), LatencyConfig(runtime=phone, cache=path))
    assert phone.asked == 3
    Path(path).write_text("notes")
    with pytest.raises(BudgetError, match=r"latency.cache must name a file of latencies, but .*phone.jsonl is none"):
        measure_latency(net(), IMAGE, LatencyConfig(runtime=phone, cache=path))
