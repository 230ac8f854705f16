"""Two processes under torchrun, stopped and continued, learn what one learns that accumulates their micro-batches."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.detection.two_processes import CONFIG, trained
from tests.end_to_end.test_detect_command import recipe_file
from tests.helpers.torchrun import under_torchrun


@pytest.mark.slow
def test_two_processes_equal_one_that_accumulates(tmp_path):
    under_torchrun(Path(__file__).with_name("two_processes.py"), tmp_path, timeout=600)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    alone = trained(tmp_path / "alone", replace(CONFIG, accumulate=2)).state_dict()
    for name, tensor in alone.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], tensor, rtol=1e-4, atol=1e-6)
    lines = [json.loads(line) for line in (tmp_path / "disk-0" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert not (tmp_path / "disk-1").exists()  # one process writes, and what it wrote serves all after a stop
    assert lines[0]["lr"] == 0.08 * 4 / 256


@pytest.mark.slow
def test_a_run_on_two_disks_is_finished_once_and_not_repeated_when_the_hosts_change_places(tmp_path, monkeypatch):
    recipe_file(tmp_path)
    for shift in range(2):
        monkeypatch.setenv("TEST_SHIFT", str(shift))
        under_torchrun(Path(__file__).with_name("detect_on_disks.py"), tmp_path, timeout=600)
    rows = {path.name: path.read_text() for path in tmp_path.glob("rows-*.json")}
    assert len(rows) == 4
    assert len(set(rows.values())) == 1
    # both disks have every checkpoint, but only the first process of the first start has logged a training
    disks = [tmp_path / f"disk-{number}" for number in (0, 1)]
    trained = [[path.parent.parent.name for path in sorted(disk.rglob("detector.pt"))] for disk in disks]
    assert trained[0] == trained[1]
    assert len(trained[0]) == 3
    logged = [sum(len(path.read_text().splitlines()) for path in disk.rglob("log.jsonl")) for disk in disks]
    assert logged == [3, 0]  # a step of each of three detectors
    # what one process refuses, all refuse, and none waits for the others
    refused = [path.read_text() for path in sorted(tmp_path.glob("refused-*.txt"))]
    assert len(refused) == 4
    assert all("another recipe (train.epochs was 1, is 2)" in text for text in refused)
