"""Optuna's dashboard serves a run's trials."""

import json
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from cafenet.cli import main
from cafenet.commands.dashboard import find_journal


def test_it_serves_the_study(finished):
    pytest.importorskip("optuna_dashboard", reason="the dashboard is an extra")
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "cafenet", "dashboard", str(finished), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        studies = _read(f"http://localhost:{port}/api/studies", process)["study_summaries"]
    finally:
        process.kill()
        process.communicate()
    assert [study["study_name"] for study in studies] == ["widths"]


def test_studies_by_name(finished):
    assert find_journal(finished) == finished / "supernet" / "trials.journal"
    assert find_journal(finished, "supernet-fixed") == finished / "supernet-fixed" / "trials.journal"


def test_the_studies_of_a_search_from_python(tmp_path):
    journal = tmp_path / "stage-1" / "trials.journal"
    journal.parent.mkdir()
    journal.write_text("")
    assert find_journal(tmp_path) == journal


def test_an_unknown_study(finished, capsys):
    assert main(["dashboard", str(finished), "--study", "other"]) == 2
    assert "--study must be one of supernet, supernet-fixed, but got 'other'" in capsys.readouterr().err


def test_a_directory_without_trials(tmp_path, capsys):
    assert main(["dashboard", str(tmp_path)]) == 2
    assert "has no trials.journal yet" in capsys.readouterr().err


def _read(address, process):
    for _ in range(300):
        assert process.poll() is None, process.stderr.read().decode()
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                return json.loads(answer.read())
        except OSError:
            time.sleep(0.2)
    raise AssertionError("no answer")


def test_a_port_that_cannot_be_had(finished, capsys):
    pytest.importorskip("optuna_dashboard", reason="the dashboard is an extra")
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["dashboard", str(finished), "--port", str(port)]) == 2
    captured = capsys.readouterr()
    assert f"localhost:{port} must be free to serve on, but: Address already in use" in captured.err
    assert captured.out == ""
    assert main(["dashboard", str(finished), "--port", "99999"]) == 2
    assert "--port must lie in 1 to 65535, but is 99999" in capsys.readouterr().err
