"""Optuna's dashboard serves a run's trials."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from cafenet.cli.dashboard import find_journal
from cafenet.cli.main import main
from cafenet.cli.web_guard import guarded


def test_it_serves_the_study(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")  # of which a study is deleted
    pytest.importorskip("optuna_dashboard", reason="the dashboard is an extra")
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "cafenet", "dashboard", str(tmp_path / "run"), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    address = f"http://localhost:{port}/api/studies"
    try:
        studies = _read(address, process)["study_summaries"]
        with urllib.request.urlopen(f"http://localhost:{port}/", timeout=20) as first_page:
            assert first_page.url == f"http://localhost:{port}/dashboard/studies/0"
            assert first_page.status == 200
        assert _status(address, Host="evil.example") == 403
        assert _status(address + "/0", "DELETE", Origin="http://evil.example") == 403
        assert _read(address, process)["study_summaries"] == studies
        assert _status(address + "/0", "DELETE", Origin=f"http://localhost:{port}") == 204
        assert _read(address, process)["study_summaries"] == []
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


def _status(address, method="GET", **headers):
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address, method=method, headers=headers), timeout=5
        ) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    ("server", "request_", "is_refused"),
    [
        ("localhost", {"Host": "localhost:8080"}, False),
        ("localhost", {"Host": "127.0.0.1:8080"}, False),
        ("localhost", {"Host": "[::1]:8080"}, False),
        ("localhost", {"Host": "LOCALHOST:9000"}, False),
        ("localhost", {"Host": "rebound.evil.example:8080"}, True),
        ("localhost", {"Host": "10.0.0.5:8080"}, True),
        ("localhost", {"Host": "localhost.evil.example"}, True),
        ("localhost", {"Host": "evil.example@localhost"}, True),
        ("localhost", {"Host": ""}, True),
        ("localhost", {}, True),
        ("0.0.0.0", {"Host": "10.0.0.5:8080"}, False),
        ("0.0.0.0", {"Host": "proxy.example"}, False),
        ("0.0.0.0", {"Host": "evil.example"}, True),
        ("localhost", {"Host": "localhost:8080", "Sec-Fetch-Site": "cross-site"}, False),
        ("localhost", {"Host": "localhost:8080", "method": "POST"}, False),
        ("localhost", {"Host": "localhost:8080", "method": "POST", "Sec-Fetch-Site": "same-origin"}, False),
        ("localhost", {"Host": "localhost:8080", "method": "POST", "Origin": "http://localhost:8080"}, False),
        ("localhost", {"Host": "localhost:8080", "method": "POST", "Origin": "http://localhost:9000"}, True),
        ("localhost", {"Host": "localhost:8080", "method": "POST", "Origin": "http://evil.example"}, True),
        ("localhost", {"Host": "localhost:8080", "method": "POST", "Origin": "null"}, True),
        ("localhost", {"Host": "localhost:8080", "method": "DELETE", "Sec-Fetch-Site": "cross-site"}, True),
        ("localhost", {"Host": "localhost:8080", "method": "PUT", "Sec-Fetch-Site": "same-site"}, True),
    ],
)
def test_requests_of_other_sites(server, request_, is_refused):
    """What browsers send for a page of another site, by name or by a form."""
    environ = {"REQUEST_METHOD": request_.pop("method", "GET")}
    environ |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request_.items()}
    answers = []
    application = guarded(lambda environ, start: [start("200 OK", []) or b""], server, ["proxy.example"])
    application(environ, lambda status, headers: answers.append(status))
    assert answers == ["403 Forbidden" if is_refused else "200 OK"]


def test_help_says_that_there_is_no_login(capsys):
    with pytest.raises(SystemExit):
        main(["dashboard", "--help"])
    assert "no login" in " ".join(capsys.readouterr().out.split())


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
    with socket.create_server(("localhost", 0)) as bin_counts:
        port = bin_counts.getsockname()[1]
        assert main(["dashboard", str(finished), "--port", str(port)]) == 2
    captured = capsys.readouterr()
    assert f"localhost:{port} must be free to serve on, but: Address already in use" in captured.err
    assert captured.out == ""
    assert main(["dashboard", str(finished), "--port", "99999"]) == 2
    assert "--port must lie in 1 to 65535, but is 99999" in capsys.readouterr().err
