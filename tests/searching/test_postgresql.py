"""A study in PostgreSQL, as many machines would share it. Debian's server is started here, as its own user."""

import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import optuna
import pytest
import sqlalchemy
import torch
from optuna.trial import TrialState

from benchmarks.common.postgresql import USER, missing
from benchmarks.common.postgresql import server as running_server
from cafenet.errors import StoreError
from cafenet.scoring.metrics import accuracy
from cafenet.scoring.scorer import Scorer, ScoringConfig
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.result import read_result, write_result
from cafenet.searching.search_config import SearchConfig
from cafenet.searching.store import trials
from cafenet.searching.store.database_trials import DatabaseTrials
from cafenet.searching.store.outages import Patient
from cafenet.searching.width_search import WidthSearch
from tests.helpers.small_search import TRAIN, VALIDATION, tiny
from tests.searching.test_store import content, open_at_once, scored, states, store_at

ALGORITHM = Evolution(population=6, iterations=2, num_parents=3)
KEEPS_ALL = ScoringConfig(batch_size=32, min_examples=16, drop_below=1e9)


pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(scope="module")
def server():
    """The directory of a new server's socket."""
    with running_server() as running:
        yield running.directory


@pytest.fixture
def url(server, request):
    """An empty database."""
    import psycopg2

    name = f"trials_{abs(hash(request.node.name))}"
    connection = psycopg2.connect(host=str(server), user=USER, dbname="postgres")
    connection.autocommit = True
    connection.cursor().execute(f"CREATE DATABASE {name}")
    connection.close()
    return f"postgresql+psycopg2://{USER}:secret@/{name}?host={server}"


def search_of(metric="accuracy"):
    scorer = Scorer(tiny(beta=0.5), TRAIN, VALIDATION, metric=metric, config=KEEPS_ALL)
    return WidthSearch(scorer, ALGORITHM, SearchConfig(band=(0.5, 1.0)))


def test_the_short_url_finds_the_driver_that_is_there(url):
    store_at(url).add(scored([1, 2], 0.5, np.zeros(3)))
    assert len(store_at(url.replace("postgresql+psycopg2://", "postgresql://")).all()) == 1


def test_what_is_written_is_what_is_read(url):
    values = np.random.default_rng(0).random(5000).astype(np.float32).astype(np.float64)
    written = [scored([1, 2], 0.1 + 0.2, values), scored([3, 4], -1e-17, is_complete=False, standard_error=1 / 3)]
    store = store_at(url)
    assert store.is_shared
    claim = store.claim(np.array([1, 2]))
    assert content(store.add(written[0], claim)) == content(written[0])
    store.add(written[1])
    assert [content(each) for each in store_at(url).all()] == [content(each) for each in written]
    with pytest.raises(StoreError, match=r"postgresql\+psycopg2://postgres@/trials") as caught:
        store_at(url, identity={"weights": "b"})
    assert "secret" not in str(caught.value)


def test_of_two_claims_the_first_holds(url):
    left, right = store_at(url), store_at(url)
    claim = left.claim(np.array([1, 2]))
    assert right.claim(np.array([1, 2])) is None
    left.add(scored([1, 2]), claim)
    right.refresh()
    assert len(right.get(np.array([1, 2]))) == 1
    assert states(right) == ["COMPLETE"]  # in a database the second claim is not even written


def test_workers_may_all_open_a_new_database_at_once(url):
    stores = open_at_once(url)
    assert len(stores) == 4
    assert [store.claim(np.array([1, 1])) is not None for store in stores].count(True) == 1


def test_a_search_is_kept_and_not_run_again(url, monkeypatch):
    search = search_of()
    (expected,) = search.run(search.budgets("50%"), None, quiet=True)
    assert search.run(search.budgets("50%"), url, quiet=True) == [expected]
    monkeypatch.setattr(Scorer, "score", None)
    assert search.run(search.budgets("50%"), url, quiet=True) == [expected]
    study = optuna.load_study(study_name="widths", storage=url)
    assert study.best_value >= expected.score
    assert set(study.best_params) == set(expected.widths)


def run(saved, url, result, meeting):
    """What another process does."""
    os.environ["TEST_MEETING"] = str(meeting)
    torch.set_num_threads(1)
    search = torch.load(saved, weights_only=False)
    (found,) = search.run(search.budgets("50%"), url, quiet=True)
    write_result(found, Path(result))


def meeting_accuracy(output, target):
    """Leaves a file for its process, and waits until three processes have been here."""
    if "TEST_MEETING" in os.environ:
        directory, until = Path(os.environ["TEST_MEETING"]), time.monotonic() + 60
        (directory / str(os.getpid())).touch()
        while len(list(directory.iterdir())) < 3:
            assert time.monotonic() < until
            time.sleep(0.01)
    return accuracy(output, target)


def trials_of(url):
    return optuna.load_study(study_name="widths", storage=url).trials


def test_two_processes_share_a_search_that_a_third_was_killed_in(url, tmp_path):
    search, meeting = search_of(meeting_accuracy), tmp_path / "meeting"
    (expected,) = search.run(search.budgets("50%"), None, quiet=True)
    torch.save(search, tmp_path / "search.pt")
    meeting.mkdir()
    context = multiprocessing.get_context("forkserver")  # imports torch once for all of them
    context.set_forkserver_preload(["cafenet.searching.width_search"])
    killed, *others = (
        context.Process(target=run, args=(tmp_path / "search.pt", url, tmp_path / f"{number}.json", meeting))
        for number in range(3)
    )
    killed.start()
    while not list(meeting.iterdir()):
        assert killed.exitcode is None
        time.sleep(0.01)
    killed.kill()  # in the middle of its first score
    killed.join()
    assert [trial.state.name for trial in trials_of(url)] == ["RUNNING"]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert [other.exitcode for other in others] == [0, 0]
    assert read_result(tmp_path / "1.json") == read_result(tmp_path / "2.json") == expected
    finished = [trial for trial in trials_of(url) if trial.state.name == "COMPLETE"]
    widths = [(*trial.params.values(), trial.user_attrs["score"]["is_exact"]) for trial in finished]
    assert len(widths) == len(set(widths))
    assert len([each for each in widths if not each[2]]) == expected.num_scored
    assert len(list(meeting.iterdir())) == 3  # both others have scored, too


def test_scores_of_an_earlier_version_are_read(url):
    """Optuna wrote them, without bins among their attributes."""
    store = store_at(url)
    state, content = TrialState.COMPLETE, trials._encoded(scored([3, 4], 0.25))
    widths = store._widths((3, 4))
    old = optuna.trial.create_trial(
        state=state, value=0.25, params=widths, distributions=store._distributions, user_attrs={"score": content}
    )
    store._storage.create_new_trial(store._study_id, template_trial=old)
    store.refresh()
    assert [each.bin_counts for each in store.all()] == [(3, 4)]
    assert store.add(scored([5, 5], 0.5)).score.value == 0.5
    assert [trial.number for trial in trials_of(url)] == [0, 1]


def test_a_full_database_is_one_line_and_a_conflict_is_tried_again(url, monkeypatch):
    store = store_at(url)
    store.add(scored([1, 1]))
    codes = ["40001", "57P01"]

    class Failed(Exception):
        pgcode = "53100"

    original = DatabaseTrials._write

    def write(self, connection, new):
        if codes:
            error = type("Error", (Exception,), {"pgcode": codes.pop()})("for a moment")
            raise sqlalchemy.exc.OperationalError("INSERT", {}, error)
        return original(self, connection, new)

    monkeypatch.setattr(DatabaseTrials, "_write", write)
    assert store.claim(np.array([2, 2])) is not None
    assert codes == []

    def full(self, connection, new):
        raise sqlalchemy.exc.OperationalError("INSERT", {}, Failed("could not extend file: No space left on device"))

    monkeypatch.setattr(DatabaseTrials, "_write", full)
    with pytest.raises(StoreError, match=r"must have room, but: could not extend file.*the scores before are kept"):
        store.claim(np.array([3, 3]))
    assert [each.bin_counts for each in store_at(url).all()] == [(1, 1)]


def test_work_whose_answer_was_lost_is_not_done_twice(url, monkeypatch):
    """The connection breaks right after the commit, once in each kind of work."""
    store, broken = store_at(url), []
    original = Patient.run

    def run(self, work):
        def once(connection):
            result = work(connection)
            if len(broken) < 2 and connection.in_transaction() and result not in (None, 0):
                broken.append(result)
                connection.commit()
                raise sqlalchemy.exc.OperationalError("COMMIT", {}, Exception("server closed the connection"))
            return result

        return original(self, once)

    monkeypatch.setattr(Patient, "run", run)
    claim = store.claim(np.array([1, 2]))
    store.add(scored([1, 2], 0.5), claim)
    assert broken == [claim, True]
    assert [trial.state.name for trial in trials_of(url)] == ["COMPLETE"]
    assert [each.bin_counts for each in store_at(url).all()] == [(1, 2)]


def test_a_server_that_is_gone_or_a_database_that_is_not_there(server):
    for place in (f"{USER}@/nothing_here?host={server}", f"{USER}@/postgres?host={server}/gone"):
        with pytest.raises(StoreError, match="must be reachable, but"):
            store_at(f"postgresql+psycopg2://{place}")
