"""The trial store: what is written is what is read, a crash loses one line at most, and the dead block nobody."""

import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

import cafenet.searching.store.trials
from cafenet.errors import StoreError
from cafenet.scoring.scorer import Score
from cafenet.searching.store import claims
from cafenet.searching.store.database_trials import DatabaseTrials
from cafenet.searching.store.scored_width import ScoredWidth
from cafenet.searching.store.trials import TrialStore
from cafenet.space.bins import Bins, GroupBins
from tests.helpers.small_search import binned

BINS = binned(9, 9)
ODD = 0.1 + 0.2


def store_at(storage, **options):
    return TrialStore(storage, options.pop("bins", BINS), options.pop("identity", {"weights": "a"}), **options)


def scored(bin_counts, value=0.5, values=None, **options):
    kind = {"is_complete": True, "standard_error": 0.0, **options}
    score = Score(value, 1, 3, 64, kind["is_complete"], kind["standard_error"], values)
    costs = {"flops": 1e15 + 1, "params": ODD}
    return ScoredWidth(tuple(bin_counts), score, costs, "search", "label", 0.25, kind.get("is_exact", False))


def content(each):
    """Everything of a scored width, to be compared bit for bit."""
    values = None if each.score.values is None else each.score.values.tolist()
    return {**vars(each), "score": {**vars(each.score), "values": values}, "costs": dict(each.costs)}


def contents(store):
    return [content(each) for each in store.all()]


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


def trials_in(path):
    """The lines that make a trial; all lines must be whole."""
    create_trial = 4
    return [log for log in map(json.loads, lines(path)) if log["op_code"] == create_trial]


def storages(directory):
    return {"journal": directory / "trials.journal", "sqlite": f"sqlite:///{directory}/trials.db"}


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_what_is_written_is_what_is_read(kind, tmp_path):
    storage = storages(tmp_path)[kind]
    values = np.random.default_rng(0).random(1000).astype(np.float32).astype(np.float64)
    written = [
        scored([1, 2], ODD, values),
        scored([3, 4], -1e-17, is_complete=False, standard_error=1 / 3),
        scored([1, 2], 1 / 3, is_exact=True),
        scored([9, 9], 0.0),
    ]
    store = store_at(storage)
    returned = [store.add(each) for each in written]
    expected = [content(each) for each in written]
    assert [content(each) for each in returned] == expected
    for opened in (store, store_at(storage)):
        assert contents(opened) == [expected[number] for number in (0, 2, 1, 3)]
        assert [content(each) for each in opened.get(np.array([1, 2]))] == [expected[0], expected[2]]
        assert opened.get(np.array([2, 2])) == []


def test_a_store_in_memory():
    store, other = store_at(None), store_at(None)
    store.add(scored([1, 2], ODD))
    assert contents(store) == [content(scored([1, 2], ODD))]
    assert other.all() == []


def test_a_finished_trial_is_one_operation(tmp_path):
    path = tmp_path / "trials.journal"
    store = store_at(path)
    assert not store.is_shared
    for number in range(1, 6):
        before = lines(path)
        store.add(scored([number, 1], is_complete=number % 2 == 0))
        assert lines(path)[: len(before)] == before
        assert len(lines(path)) == len(before) + 1


def test_another_store_sees_what_was_added_when_it_looks(tmp_path):
    left, right = (store_at(tmp_path / "trials.journal") for _ in range(2))
    left.add(scored([1, 2]))
    assert right.get(np.array([1, 2])) == []
    right.refresh()
    assert contents(right) == contents(left) == [content(scored([1, 2]))]
    right.add(scored([3, 3]))
    left.add(scored([4, 4]))
    assert [each.bin_counts for each in left.all()] == [(1, 2), (3, 3), (4, 4)]


def test_studies_of_one_storage_are_separate(tmp_path):
    path = tmp_path / "trials.journal"
    first, second = store_at(path, name="first"), store_at(path, name="second", identity={"weights": "b"})
    first.add(scored([1, 2]))
    second.add(scored([3, 3]))
    assert [each.bin_counts for each in store_at(path, name="first").all()] == [(1, 2)]
    assert [each.bin_counts for each in store_at(path, name="second", identity={"weights": "b"}).all()] == [(3, 3)]


def test_many_writers_at_once_tear_nothing(tmp_path):
    path = tmp_path / "trials.journal"
    store_at(path)

    def write(first):
        store = store_at(path)
        for second in range(1, 10):
            store.add(scored([first, second], value=first / second, values=np.full(50, 0.5)))

    threads = [threading.Thread(target=write, args=(first,)) for first in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {each.bin_counts: each.score.value for each in store_at(path).all()}
    assert found == {(first, second): first / second for first in range(1, 7) for second in range(1, 10)}
    assert len(trials_in(path)) == 54


def open_at_once(storage, number=4):
    """Stores that so many workers open on a new storage at the same time."""
    barrier, stores = threading.Barrier(number), []

    def work():
        barrier.wait()
        stores.append(store_at(storage, is_shared=True))

    threads = [threading.Thread(target=work) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return stores


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_workers_may_all_open_a_new_storage_at_once(kind, tmp_path):
    stores = open_at_once(storages(tmp_path)[kind])
    assert len(stores) == 4
    assert [store.claim(np.array([1, 1])) is not None for store in stores].count(True) == 1


def test_a_torn_last_line_is_lost_and_nothing_else(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # only for speed
    path = tmp_path / "trials.journal"
    store = store_at(path)
    for number in range(1, 4):
        store.add(scored([number, 1]))
    whole, last = path.read_bytes(), lines(path)[-1]
    torn = tmp_path / "torn.journal"
    for cut in range(1, len(last) + 1):
        torn.write_bytes(whole[:-cut])
        store = store_at(torn)
        assert [each.bin_counts for each in store.all()] == [(1, 1), (2, 1)]
        store.add(scored([4, 1]))
        assert torn.read_bytes().startswith(whole[: -len(last)])
        assert len(trials_in(torn)) == 3
        if cut % 50 == 1:
            assert [each.bin_counts for each in store_at(torn).all()] == [(1, 1), (2, 1), (4, 1)]


def test_a_journal_cut_anywhere_opens(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # only for speed
    path = tmp_path / "trials.journal"
    store_at(path).add(scored([1, 1]))
    whole = path.read_bytes()
    for size in range(0, len(whole), 13):
        path.write_bytes(whole[:size])
        store = store_at(path)
        store.add(scored([2, 1]))
        assert [each.bin_counts for each in store_at(path).all()] == [(2, 1)]


def test_a_line_that_is_being_written_is_not_there_yet(tmp_path):
    path = tmp_path / "trials.journal"
    writer, reader = store_at(path), store_at(path)
    writer.add(scored([1, 1]))
    whole, last = path.read_bytes(), lines(path)[-1]
    path.write_bytes(whole[: -len(last) // 2])
    reader.refresh()
    assert reader.all() == []
    path.write_bytes(whole)
    reader.refresh()
    assert [each.bin_counts for each in reader.all()] == [(1, 1)]


@pytest.mark.parametrize(
    "garbage",
    [
        b"hello\n",
        b"hello",
        b"\x80\x04\x95binary\x00",
        b"\x80\x04\x95binary\n\x00more",
        b'{"model": "resnet18", "epochs": 10}',
        b'{"model": "resnet18", "epochs": 10}\n',
        b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n',
        b"[1, 2]\n",
        b'{"op_code": 4, "worker_id": "w"}\n',
        b'{"op_code": 4}\n',
        b"\n",
    ],
)
def test_a_file_that_is_no_journal_is_refused_and_left_as_it_was(garbage, tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(garbage)
    with pytest.raises(StoreError, match=r"config\.json"):
        store_at(path)
    assert path.read_bytes() == garbage


def test_a_directory_or_a_path_through_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "trials.journal"):
        with pytest.raises(StoreError, match="must be a readable and writable journal file, but"):
            store_at(path)


def test_missing_directories_are_made(tmp_path):
    store_at(tmp_path / "a" / "b" / "trials.journal").add(scored([1, 1]))
    assert (tmp_path / "a" / "b" / "trials.journal").is_file()


@contextmanager
def as_nobody():
    """Root may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_directory(tmp_path):
    """A directory that others can look into."""
    for directory in (tmp_path, *tmp_path.parents[:3]):
        if directory.owner() == Path("/proc/self").owner() and directory != Path("/tmp"):
            directory.chmod(0o755)
    return tmp_path


def test_a_directory_that_cannot_be_written_is_an_error_at_once(open_directory):
    open_directory.chmod(0o555)
    with as_nobody(), pytest.raises(StoreError, match=r"readable and writable journal file, but: .*Permission denied"):
        store_at(open_directory / "trials.journal")


def test_a_journal_that_can_only_be_read_is_an_error_at_once(open_directory):
    path = open_directory / "trials.journal"
    store_at(path).add(scored([1, 1]))
    path.chmod(0o444)
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)  # it is nobody's own file
    with as_nobody(), pytest.raises(StoreError, match=r"readable and writable journal file, but: .*Permission denied"):
        store_at(path)


def test_a_full_disk_is_an_error_and_what_was_there_is_kept(tmp_path):
    path = tmp_path / "trials.journal"
    store = store_at(path)
    store.add(scored([1, 1]))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, limits[1]))
    try:
        with pytest.raises(StoreError, match=r"cannot be written: .*; what was scored before is kept"):
            store.add(scored([2, 1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    store = store_at(path)
    assert [each.bin_counts for each in store.all()] == [(1, 1)]
    store.add(scored([3, 1]))
    assert [each.bin_counts for each in store_at(path).all()] == [(1, 1), (3, 1)]


def test_a_study_of_another_supernet_is_refused(tmp_path):
    path = tmp_path / "trials.journal"
    store_at(path, identity={"weights": "a", "scoring": {"race": True, "share": ODD}, "bins": [1, 2]})
    store_at(path, identity={"weights": "a", "scoring": {"race": True, "share": ODD}, "bins": [1, 2]})
    with pytest.raises(StoreError) as caught:
        store_at(path, identity={"weights": "b", "scoring": {"race": True, "share": 0.3}, "bins": [1, 2]})
    message = str(caught.value)
    assert "the study 'widths' in" in message
    assert str(path) in message
    assert "weights was 'a', is 'b'" in message
    assert "scoring was" in message
    assert "bins" not in message
    assert "use another directory, or another study name or storage" in message
    with pytest.raises(StoreError, match="metric was None, is 'accuracy'"):
        store_at(path, identity={"weights": "a", "metric": "accuracy"})


def test_a_study_of_another_program_is_refused(tmp_path):
    path = tmp_path / "trials.journal"
    study = optuna.create_study(storage=JournalStorage(JournalFileBackend(str(path))), study_name="widths")
    study.optimize(lambda trial: trial.suggest_float("lr", 0, 1), n_trials=2)
    with pytest.raises(StoreError, match="must be a search's, but is another program's; use another directory"):
        store_at(path)
    assert study.user_attrs == {}
    store_at(path, name="ours").add(scored([1, 1]))
    assert len(store_at(path, name="ours").all()) == 1


def test_trials_that_others_add_do_not_disturb(tmp_path):
    path = tmp_path / "trials.journal"
    store = store_at(path, is_shared=True)
    study = optuna.load_study(storage=JournalStorage(JournalFileBackend(str(path))), study_name="widths")
    study.ask()  # runs without a width
    study.enqueue_trial({"g0": 1, "g1": 2})
    study.add_trial(optuna.create_trial(value=3.0))
    for opened in (store, store_at(path, is_shared=True)):
        claim = opened.claim(np.array([1, 2]))
        opened.add(scored([1, 2]), claim)
    assert len(store.get(np.array([1, 2]))) == 1


def test_optuna_opens_the_study_and_shows_widths(tmp_path):
    path = tmp_path / "trials.journal"
    bins = Bins((GroupBins("layer1.conv", 10, 4, 3), GroupBins("fixed", 5, 5, 2)))
    store = store_at(path, bins=bins)
    store.add(scored([2, 1], 0.75))
    store.add(scored([3, 1], 0.25, is_complete=False))
    claim = store.claim(np.array([1, 1]))
    assert [each.bin_counts for each in store_at(path, bins=bins).all()] == [(2, 1), (3, 1)]
    study = optuna.load_study(storage=JournalStorage(JournalFileBackend(str(path))), study_name="widths")
    assert [trial.params for trial in study.trials] == [
        {"layer1.conv": 7, "fixed": 5},
        {"layer1.conv": 10, "fixed": 5},
        {"layer1.conv": 4, "fixed": 5},
    ]
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING]
    assert [trial.value for trial in study.trials] == [0.75, 0.25, None]
    assert study.direction == optuna.study.StudyDirection.MAXIMIZE
    assert study.best_params == {"layer1.conv": 7, "fixed": 5}
    assert study.trials[2]._trial_id == claim


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://nobody:secret@127.0.0.1:1/x",
        "postgresql+psycopg2://nobody:se@cret:t@127.0.0.1:1/x",
        "postgresql://nobody@127.0.0.1:1/x?password=secret",
        "mysql://nobody:secret@127.0.0.1:1/x",
        "nonsense://nobody:secret@host/x",
        "postgresql://nobody:secret@127.0.0.1:notaport/x",
        "sqlite:////nowhere/at/all.db",
    ],
)
def test_a_storage_out_of_reach_is_an_error_at_once_and_shows_no_password(url):
    start = time.monotonic()
    with pytest.raises(
        StoreError, match=r"the storage \w.*:/.* must be reachable, but: \S.*; check the address"
    ) as caught:
        store_at(url)
    assert time.monotonic() - start < 5
    assert "cret" not in str(caught.value)


def test_a_study_of_another_supernet_shows_no_password(monkeypatch, tmp_path):
    path = tmp_path / "trials.journal"
    store_at(path)
    opened = cafenet.searching.store.trials.open_storage(path)
    monkeypatch.setattr(cafenet.searching.store.trials, "open_storage", lambda storage: opened)
    with pytest.raises(StoreError, match="in postgresql://me@host/db must belong to this supernet"):
        store_at("postgresql://me:secret@host/db", identity={"weights": "b"})


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_of_two_claims_the_first_holds(kind, tmp_path):
    storage = storages(tmp_path)[kind]
    left, right = (store_at(storage, is_shared=True) for _ in range(2))
    width, other = np.array([1, 2]), np.array([1, 3])
    claim = left.claim(width)
    assert claim is not None
    assert right.claim(width) is None  # it learns of the other claim only after its own
    assert right.claim(width) is None
    assert left.claim(width) is None
    assert right.claim(other) is not None
    returned = left.add(scored([1, 2], ODD), claim)
    assert content(returned) == content(scored([1, 2], ODD))
    right.refresh()
    assert contents(right) == contents(store_at(storage)) == [content(scored([1, 2], ODD))]


def test_a_url_is_shared_unless_told_otherwise(tmp_path):
    url = storages(tmp_path)["sqlite"]
    assert store_at(url).is_shared
    assert not store_at(url, is_shared=False).is_shared
    assert not store_at(None).is_shared


def test_a_claim_given_up_is_free(tmp_path):
    left, right = (store_at(tmp_path / "trials.journal", is_shared=True) for _ in range(2))
    width = np.array([1, 2])
    claim = left.claim(width)
    left.give_up(claim)
    left.give_up(claim)  # once is enough, twice does no harm
    assert right.claim(width) is not None
    assert right.all() == []


def claimed_by(store, monkeypatch, width, **claim):
    """A claim that some process left behind."""
    whose = {**claims.claim_of_this_process(), "birth": 1, **claim}
    with monkeypatch.context() as patch:
        patch.setattr(claims, "claim_of_this_process", lambda: whose)
        return store.claim(np.array(width))


def states(store):
    return [trial.state.name for trial in store._storage.get_all_trials(store._study_id)]


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
@pytest.mark.parametrize("is_reaped", [True, False])
def test_the_claim_of_a_dead_process_is_taken_over(is_reaped, kind, monkeypatch, tmp_path):
    storage = storages(tmp_path)[kind]
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    left, right = (store_at(storage, is_shared=True) for _ in range(2))
    birth = claims.birth(process.pid)
    assert birth
    claimed_by(left, monkeypatch, [1, 2], pid=process.pid, birth=birth)
    right.refresh()
    assert right.claim(np.array([1, 2])) is None
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | (0 if is_reaped else os.WNOWAIT))  # else it is a zombie from here on
    assert right.claim(np.array([1, 2])) is not None
    assert states(right) == ["FAIL", "RUNNING"]
    assert left.claim(np.array([1, 2])) is None
    process.wait()


def test_the_claim_of_a_process_whose_number_is_used_again_is_taken_over(monkeypatch, tmp_path):
    store = store_at(tmp_path / "trials.journal", is_shared=True)
    claimed_by(store, monkeypatch, [1, 2], birth=claims.birth(os.getpid()) - 1)
    assert store.claim(np.array([1, 2])) is not None


def test_a_process_that_tells_no_birth_is_alive_while_its_number_is(monkeypatch, tmp_path):
    store = store_at(tmp_path / "trials.journal", is_shared=True)
    claimed_by(store, monkeypatch, [1, 2], birth=0)
    assert store.claim(np.array([1, 2])) is None
    monkeypatch.setattr(claims, "birth", lambda pid: 0 if pid == os.getpid() else None)
    claimed_by(store, monkeypatch, [1, 3], birth=7)
    assert store.claim(np.array([1, 3])) is None


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_the_claim_of_another_host_is_taken_over_when_its_count_stands_still(hours, kind, monkeypatch, tmp_path):
    storage = storages(tmp_path)[kind]
    there, here = (store_at(storage, is_shared=True, stale_seconds=0.6) for _ in range(2))
    wrong = time.time() + 3600 * hours  # clocks of hosts do not matter
    works = claimed_by(there, monkeypatch, [1, 1], host="elsewhere", time=wrong)
    stands = claimed_by(there, monkeypatch, [1, 2], host="elsewhere", time=wrong)
    there._beats.end(stands)
    until = time.monotonic() + 1.5
    taken = None
    while time.monotonic() < until:
        here.refresh()
        assert here.claim(np.array([1, 1])) is None
        taken = taken or here.claim(np.array([1, 2]))
        time.sleep(0.05)
    assert taken is not None
    assert states(here) == ["RUNNING", "FAIL", "RUNNING"]
    # the worker was only slow: its score is not written beside that of the one who took over
    assert there.add(scored([1, 2], ODD), stands) is None
    here.add(scored([1, 2], ODD), taken)
    assert content(there.add(scored([1, 2], 0.25), stands)) == content(scored([1, 2], ODD))
    there.add(scored([1, 1]), works)
    assert sorted(each.bin_counts for each in store_at(storage).all()) == [(1, 1), (1, 2)]


def test_a_score_whose_claim_was_given_up_is_kept_if_nobody_else_has_it(tmp_path):
    left, right = (store_at(tmp_path / "trials.journal", is_shared=True) for _ in range(2))
    claim = left.claim(np.array([1, 2]))
    right.refresh()
    right.give_up(claim)
    assert content(left.add(scored([1, 2], ODD), claim)) == content(scored([1, 2], ODD))
    assert states(left) == ["FAIL", "COMPLETE"]


def test_the_claim_of_an_earlier_version_is_taken_over_on_its_host(monkeypatch, tmp_path):
    store = store_at(tmp_path / "trials.journal", is_shared=True)
    old = {"host": socket.gethostname(), "pid": 2**22 + 1, "birth": 5, "time": time.time()}
    with monkeypatch.context() as patch:
        patch.setattr(claims, "claim_of_this_process", lambda: {**old, "id": "x"})
        trial = store.claim(np.array([1, 2]))
    assert store._watch.is_dead(trial, old, lambda: 0)
    assert not store._watch.is_dead(trial, {**old, "pid": os.getpid(), "birth": claims.birth(os.getpid())}, lambda: 0)
    assert not store._watch.is_dead(trial, {**old, "host": "elsewhere"}, lambda: 0)


def test_claims_left_behind_do_not_show_as_scores(monkeypatch, tmp_path):
    path = tmp_path / "trials.journal"
    store = store_at(path, is_shared=True)
    claimed_by(store, monkeypatch, [1, 2], pid=2**22 + 1)
    reopened = store_at(path)
    assert reopened.all() == []
    reopened.add(scored([1, 2]))
    assert [each.bin_counts for each in store_at(path).all()] == [(1, 2)]


def test_trials_are_read_once_from_a_database(tmp_path, monkeypatch):
    read = []
    original = DatabaseTrials._changes

    def counted(self, connection):
        trials = original(self, connection)
        read.append(len(trials))
        return trials

    left, right = (store_at(storages(tmp_path)["sqlite"]) for _ in range(2))
    monkeypatch.setattr(DatabaseTrials, "_changes", counted)
    for number in range(1, 10):
        left.add(scored([number, 1]), left.claim(np.array([number, 1])))
    assert sum(read) == 0  # what a worker has written itself, it knows
    for _ in range(3):
        right.refresh()
    assert sum(read) == 9
