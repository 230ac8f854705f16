"""Workers on three hosts and a PostgreSQL server on a fourth, each in a network namespace of its own.

One worker is killed, one is cut off from the network until others have taken its width, the server crashes and comes
back, and the clocks are hours apart: no width is lost or in the store twice, and all get what one worker gets.
"""

import json
from collections import Counter
from pathlib import Path

import optuna
import pytest

from benchmarks.common import postgresql
from tests.helpers.hosts import finish, missing, network, wait_for
from tests.searching.on_hosts import rows, value_of

pytestmark = pytest.mark.skipif(
    (missing() or postgresql.missing()) is not None, reason=str(missing() or postgresql.missing())
)
SCRIPT = str(Path(__file__).with_name("on_hosts.py"))
DATABASE = 3


def num_scored(place: Path, host: int) -> int:
    path = place / f"host{host}.scored"
    return int(path.read_text() or 0) if path.exists() else 0


def faults(place: Path, number: int, seconds: float, stale: float, cut_until) -> Counter[str]:
    """Run three workers through all faults; return how often each width is in the store, by its state."""
    with network(4) as net:
        address, inside = net.address(DATABASE), ["ip", "netns", "exec", net.namespace(DATABASE)]
        with postgresql.server(address, inside, network="10.77.0.0/24") as server:
            url = f"postgresql+psycopg2://postgres@{address}/postgres"
            logs = [place / f"{host}.log" for host in range(3)]
            options = (url, str(place), str(number), str(seconds), str(stale))
            workers = [
                net.python(host, SCRIPT, *options, str(hours), log=logs[host]) for host, hours in enumerate((0, 1, -1))
            ]
            wait_for(lambda: all(num_scored(place, host) >= 2 for host in range(3)), 600, "scoring on three hosts")
            net.kill(0)
            net.cut(1)
            cut_until()
            server.stop()
            server.start()
            assert num_scored(place, 2) < number
            net.mend(1)
            finish(workers[1:], logs, 900)
            return states(f"postgresql+psycopg2://postgres@/postgres?host={server.directory}")


def states(url: str) -> Counter[str]:
    study = optuna.load_study(study_name="widths", storage=url)
    complete = Counter(tuple(trial.params.values()) for trial in study.trials if trial.state.name == "COMPLETE")
    assert set(complete.values()) == {1}  # none is there twice
    return Counter(trial.state.name for trial in study.trials)


def assert_as_one_worker(place: Path, number: int) -> None:
    for host in (1, 2):
        assert json.loads((place / f"host{host}.json").read_text()) == [value_of(row) for row in rows(number)]


def test_a_worker_dies_another_is_cut_off_and_the_server_crashes(tmp_path):
    number = 60

    def cut_until() -> None:
        """The one worker that is left has gone on for a while, in which the claims of both others became stale."""
        at = num_scored(tmp_path, 2)
        wait_for(lambda: num_scored(tmp_path, 2) >= at + 12, 300, "going on")

    found = faults(tmp_path, number, 0.1, 1.0, cut_until)
    assert found["COMPLETE"] == number  # none is lost
    assert found["RUNNING"] == 0
    assert found["FAIL"] >= 1  # the claim of the dead worker
    assert_as_one_worker(tmp_path, number)


@pytest.mark.slow
def test_a_worker_is_cut_off_for_a_minute(tmp_path):
    import time

    found = faults(tmp_path, 400, 0.3, 20.0, lambda: time.sleep(60))
    assert found["COMPLETE"] == 400
    assert_as_one_worker(tmp_path, 400)
