"""A search that was killed goes on where it was, and workers that share one do without those that die."""

import functools
import multiprocessing
import os
import random
import signal
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cafenet.errors import StoreError
from cafenet.models.user_factory import import_source
from cafenet.scoring.metrics import accuracy
from cafenet.scoring.scorer import Scorer, ScoringConfig
from cafenet.searching import width_search as widths
from cafenet.searching.algorithms.evolution import Evolution
from cafenet.searching.budget import Budget, Cap
from cafenet.searching.result import read_result, write_result
from cafenet.searching.search_config import SearchConfig
from cafenet.searching.store.claims import birth
from cafenet.searching.store.trials import TrialStore
from cafenet.searching.width_search import WidthSearch
from tests.helpers.small_search import TRAIN, VALIDATION, tiny

ALGORITHM = Evolution(population=12, iterations=4, num_parents=4)
SCORING = ScoringConfig(batch_size=32, min_examples=16)
CONFIG = SearchConfig(seed=3, band=(0.2, 1.0))


def search_of(supernet, metric="accuracy", config=CONFIG, scoring=SCORING):
    return WidthSearch(Scorer(supernet, TRAIN, VALIDATION, metric=metric, config=scoring), ALGORITHM, config)


def slow_accuracy(output, target):
    time.sleep(0.002)
    return accuracy(output, target)


def run(saved, journal, result):
    """What a process that may be killed does; the search is read from a file, because a first trace takes a second."""
    torch.set_num_threads(1)
    search = torch.load(saved, weights_only=False)
    (found,) = search.run(search.budgets("50%"), journal, quiet=True)
    write_result(found, Path(result))


def trials(search, journal):
    """The trials in a journal, in their order, without what depends on the clock."""
    store = TrialStore(journal, search.scorer.supernet.binned.bins, search.identity())
    found = store._storage.get_all_trials(store._study_id)
    return [
        (
            trial.params,
            trial.value,
            trial.state,
            {key: value for key, value in trial.user_attrs["score"].items() if key != "seconds"},
        )
        for trial in found
    ]


def test_killed_five_times_and_resumed_equals_uninterrupted(tmp_path):
    search, saved = search_of(tiny(beta=0.5), slow_accuracy), tmp_path / "search.pt"
    torch.save(search, saved)
    run(saved, tmp_path / "whole.journal", tmp_path / "whole.json")
    expected = trials(search, tmp_path / "whole.journal")
    assert len(expected) > 30
    assert {trial[2].name for trial in expected} == {"COMPLETE", "PRUNED"}

    seed = random.SystemRandom().randrange(10**6)
    rng = random.Random(seed)
    context = multiprocessing.get_context("forkserver")  # imports torch once for all six processes
    context.set_forkserver_preload(["cafenet.searching.width_search"])
    journal, result = tmp_path / "parts.journal", tmp_path / "parts.json"
    start = functools.partial(context.Process, target=run, args=(saved, journal, result))
    for _ in range(5):
        process, wanted = start(), num_lines(journal) + rng.randint(1, len(expected) // 8)
        process.start()
        wait_for(lambda wanted=wanted: num_lines(journal) >= wanted, process)
        time.sleep(rng.random() * 0.02)
        assert process.is_alive(), f"ended before it could be killed; random seed {seed}"
        process.kill()
        process.join()
    num_before = num_lines(journal)
    process = start()
    process.start()
    process.join()
    assert process.exitcode == 0
    assert num_before < num_lines(journal)
    assert read_result(result) == read_result(tmp_path / "whole.json")
    assert trials(search, journal) == expected


def num_lines(journal):
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def wait_for(is_ready, process):
    until = time.monotonic() + 120
    while not is_ready():
        assert process.is_alive(), "the search ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.002)


def friendly_accuracy(output, target):
    """Says when another process than the test's own scores; it may be told to die of that."""
    if str(os.getpid()) != os.environ["TEST_PID"]:
        Path(os.environ["TEST_HELPER_WORKS"]).touch()
        if os.environ["TEST_HELPER_DIES"] == "yes":
            os.kill(os.getpid(), signal.SIGKILL)
    return accuracy(output, target)


@pytest.mark.parametrize("dies", ["no", "yes"])
def test_two_workers_score_each_width_once_also_when_one_is_killed(dies, monkeypatch, tmp_path):
    works = tmp_path / "helper-works"
    for name, value in (("PID", str(os.getpid())), ("HELPER_WORKS", str(works)), ("HELPER_DIES", dies)):
        monkeypatch.setenv(f"TEST_{name}", value)
    keeps_all = replace(SCORING, drop_below=1e9)  # what is dropped depends on who is first
    supernet = tiny(beta=0.5)
    search = search_of(supernet, friendly_accuracy, replace(CONFIG, search_workers=2), keeps_all)
    alone = search_of(supernet, friendly_accuracy, CONFIG, keeps_all)
    (expected,) = alone.run(alone.budgets("50%"), None, quiet=True)

    scored, score = [], Scorer.score

    def waits_for_help(self, bin_counts, bar=None, *, exact=False):
        until = time.monotonic() + 120
        while not works.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        scored.append(bin_counts)
        return score(self, bin_counts, bar, exact=exact)

    monkeypatch.setattr(Scorer, "score", waits_for_help)
    num_threads = torch.get_num_threads()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (result,) = search.run(search.budgets("50%"), tmp_path / "trials.journal", quiet=True)
    told = [str(each.message) for each in caught if "workers ended early" in str(each.message)]
    assert told == (["1 of 2 workers ended early, with exit code -9; the others went on"] if dies == "yes" else [])
    assert result == expected
    assert torch.get_num_threads() == num_threads
    store = TrialStore(tmp_path / "trials.journal", supernet.binned.bins, search.identity())
    found = [(each.bin_counts, each.is_exact) for each in store.all()]
    assert len(found) == len(set(found))
    assert len({bin_counts for bin_counts, is_exact in found if not is_exact}) == result.num_scored
    if dies == "yes":
        assert len(scored) == len(found)
    else:
        assert 0 < len(scored) < len(found)


class Estimate:
    """Of latency: a millisecond a channel, as it was measured before helpers began."""

    full_ms = 1.0

    def predict(self, widths):
        return widths.sum(axis=1).astype(float)


def test_workers_share_one_estimate_of_latency_and_picks_are_measured_without_them(monkeypatch, tmp_path):
    works, fits, helpers = tmp_path / "helper-works", [], []
    others = multiprocessing.active_children()  # of tests before this one
    for name, value in (("PID", str(os.getpid())), ("HELPER_WORKS", str(works)), ("HELPER_DIES", "no")):
        monkeypatch.setenv(f"TEST_{name}", value)

    def measured(model, *_):
        helpers.append([child for child in multiprocessing.active_children() if child not in others])
        return float(model.one.out_channels + model.two.out_channels)

    monkeypatch.setattr(widths, "fit_latency", lambda *_, **__: fits.append(1) or Estimate())
    monkeypatch.setattr(widths, "measure_latency", measured)
    score = Scorer.score

    def waits_for_help(self, *args, **options):
        until = time.monotonic() + 120
        while not works.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        return score(self, *args, **options)

    monkeypatch.setattr(Scorer, "score", waits_for_help)
    keeps_all = replace(SCORING, drop_below=1e9)
    search = search_of(tiny(beta=0.5), friendly_accuracy, replace(CONFIG, search_workers=2), keeps_all)
    journal = tmp_path / "trials.journal"
    (result,) = search.run([Budget("12ms", (Cap("latency_ms", 12.0),))], journal, quiet=True)
    assert result.costs["latency_ms"] <= 12
    assert fits == [1]
    assert helpers == [[]] * len(helpers) != []
    store = TrialStore(journal, search.scorer.supernet.binned.bins, search.identity())
    assert (
        len({each.bin_counts for each in store.all() if not each.is_exact}) == result.num_scored
    )  # nobody had another way


def telling_accuracy(output, target):
    """Where asked to, leaves the number of the process that scores as the name of a file, and waits for another one."""
    if "TEST_PIDS" in os.environ:
        pids, until = Path(os.environ["TEST_PIDS"]), time.monotonic() + 60
        (pids / str(os.getpid())).touch()
        while len(list(pids.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.002)
        if str(os.getpid()) != os.environ["TEST_PID"] and pids.with_name("stopped").exists():
            time.sleep(60)  # a helper that does not end by itself
    return accuracy(output, target)


def run_telling(pids, *args):
    os.environ.update(TEST_PIDS=str(pids), TEST_PID=str(os.getpid()))
    run(*args)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_helpers_end_with_a_search_that_is_stopped_and_its_scores_are_kept(number, tmp_path):
    pids = tmp_path / "pids"
    pids.mkdir()
    keeps_all = replace(SCORING, drop_below=1e9)
    search = search_of(tiny(beta=0.5), telling_accuracy, replace(CONFIG, search_workers=2), keeps_all)
    saved, journal, result = (tmp_path / name for name in ("search.pt", "trials.journal", "result.json"))
    torch.save(search, saved)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cafenet.searching.width_search"])
    process = context.Process(target=run_telling, args=(pids, saved, journal, result))
    process.start()
    wait_for(lambda: len(list(pids.iterdir())) == 2 and num_lines(journal) > 8, process)
    pids.with_name("stopped").touch()
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == (1 if number == signal.SIGTERM else -number)  # 1: KeyboardInterrupt
    (helper,) = {int(path.name) for path in pids.iterdir()} - {process.pid}
    until = time.monotonic() + 20
    while birth(helper) is not None:
        assert time.monotonic() < until, "the helper runs on"
        time.sleep(0.01)
    assert not result.exists()
    num_before = len(TrialStore(journal, search.scorer.supernet.binned.bins, search.identity()).all())
    assert num_before > 0
    alone = search_of(tiny(beta=0.5), telling_accuracy, CONFIG, keeps_all)
    (expected,) = alone.run(alone.budgets("50%"), None, quiet=True)
    (resumed,) = alone.run(alone.budgets("50%"), journal, quiet=True)
    assert resumed == expected


def test_workers_import_a_metric_from_a_file_by_path(tmp_path, monkeypatch):
    """What `path/to/file.py:NAME` imports has a module that another process does not know by itself."""
    works = tmp_path / "helper-works"
    monkeypatch.setenv("TEST_PID", str(os.getpid()))
    (tmp_path / "own.py").write_text(
        "import os, time\n\nfrom beside_own_metric import WORKS\n\n\n"
        "def metric(output, target):\n"
        "    if str(os.getpid()) != os.environ['TEST_PID']:\n"
        "        WORKS.touch()\n"
        "    until = time.monotonic() + 120\n"
        "    while 'TEST_WAITS' in os.environ and not WORKS.exists() and time.monotonic() < until:\n"
        "        time.sleep(0.01)\n"
        "    return (output.argmax(dim=1) == target).double()\n"
    )
    (tmp_path / "beside_own_metric.py").write_text(f"import pathlib\n\nWORKS = pathlib.Path({str(works)!r})\n")
    with import_source(str(tmp_path / "own.py")) as module:
        search = search_of(tiny(beta=0.5), module.metric, replace(CONFIG, search_workers=2))
    budgets = search.budgets("50%")
    monkeypatch.setenv("TEST_WAITS", "yes")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search.run(budgets, None, quiet=True)
    assert works.exists()


def test_workers_need_what_can_be_found_by_name():
    search = search_of(tiny(), lambda output, target: accuracy(output, target), replace(CONFIG, search_workers=2))
    with pytest.raises(StoreError, match="the model and the metric must be importable by name, but"):
        search.run(search.budgets("50%"), None, quiet=True)


def test_a_claim_left_behind_does_not_change_a_resumed_search(tmp_path):
    search = search_of(tiny(beta=0.5))
    (expected,) = search.run(search.budgets("50%"), None, quiet=True)
    bins = search.scorer.supernet.binned.bins
    store = TrialStore(tmp_path / "trials.journal", bins, search.identity(), is_shared=True)
    for row in (np.array([4, 6]), np.array([5, 5])):
        assert store.claim(row) is not None  # by a process that lives, but nobody waits for it here
    (result,) = search.run(search.budgets("50%"), tmp_path / "trials.journal", quiet=True)
    assert result == expected
