"""`cafenet worker`: it scores what a run announces, as the run itself would; what does not fit is one line."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import optuna
import pytest

from cafenet.cli.main import main
from cafenet.common.run_places import JOURNAL
from cafenet.errors import CafeNetError
from cafenet.pipeline.shared_search import ENDED, RUNNING, SharedSearch
from cafenet.runs.join_search import join_search
from cafenet.runs.recipe_files import as_document, load_recipe
from cafenet.runs.run_recipe import run_recipe
from cafenet.runs.workload import Workload
from cafenet.scoring.scorer import Scorer
from cafenet.searching.store.board import Board
from tests.helpers.tiny_run import recipe_file, refused

OPTIONS = {"algorithms": ["random"], "random": {"samples": 6}, "baselines": {"fixed": False}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A directory with a recipe whose supernet is trained."""
    place = tmp_path_factory.mktemp("trained")
    recipe = load_recipe(str(recipe_file(place, **OPTIONS)))
    run_recipe(recipe, place / "run", until="train", quiet=True)
    return place


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Path:
    """A copy of that directory."""
    return shutil.copytree(trained, tmp_path, dirs_exist_ok=True)


def shared(place: Path, study: str = "run") -> SharedSearch:
    recipe = load_recipe(str(place / "tiny.yaml"))
    part = {"algorithm": "random", "fixed": False}
    return SharedSearch(f"sqlite:///{place}/scores.db", study, place / "run", as_document(recipe), part)


def announce(place: Path, study: str = "run") -> str:
    """Announce the search, as a run does that is killed at once; returns the URL."""
    search = shared(place, study)
    budgets = Workload(load_recipe(str(place / "tiny.yaml"))).budgets
    with search.open_for(place / "run" / "supernet", budgets):
        notice = Board(search.storage).read()[study]
    Board(search.storage).write(study, notice)
    return search.storage


def found(directory: Path) -> list[dict]:
    return json.loads((directory / "entries.json").read_text())["entries"]


def trials(url: str, study: str = "run/supernet") -> list[tuple]:
    every = optuna.load_study(study_name=study, storage=url).trials
    return [(*each.params.values(), each.value, each.user_attrs["score"]["is_exact"]) for each in every]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_worker_scores_all_that_a_run_announces_and_the_run_takes_it(scheme, place, monkeypatch):
    recipe = load_recipe(str(place / "tiny.yaml"))
    url = announce(place)
    done = join_search(url, f"{scheme}{place}/run", wait_seconds=0)
    assert (done.searches, done.reason) == (1, "the search run had no work for 0 seconds")
    assert done.scored == len(trials(url)) == 6
    scored = []
    monkeypatch.setattr(
        Scorer,
        "score",
        lambda self, *args, original=Scorer.score, **options: (
            scored.append(options) or original(self, *args, **options)
        ),
    )
    run_recipe(recipe, place / "run", until="search", storage=url, quiet=True)
    assert all(options["exact"] for options in scored)  # finalists only
    assert len(set(trials(url))) == len(trials(url)) == 6 + len(scored)
    assert Board(url).read()["run"]["state"] == ENDED
    assert join_search(url, place / "run").reason == "the search run has ended"
    num_final = len(scored)
    # alone it finds the same, and its journal holds the same as that of the shared search
    run_recipe(recipe, place / "alone", until="search", quiet=True)
    assert found(place / "run") == found(place / "alone")
    journals = [(place / name / "supernet" / JOURNAL).read_text().count('"score"') for name in ("run", "alone")]
    assert journals[0] == journals[1] == 6 + num_final


def test_a_worker_may_have_the_data_and_the_device_elsewhere(place):
    url = announce(place)
    assert main(["worker", url, "--run", str(place / "run"), "--wait", "0", "--device", "cpu", "--quiet"]) == 0
    assert len(trials(url)) == 6
    with pytest.raises(CafeNetError, match="nowhere"):
        join_search(url, place / "run", wait_seconds=0, data="nowhere")


def with_notice(url: str, name: str = "run", **changes) -> None:
    notice = Board(url).read()[name]
    Board(url).write(name, notice | changes)


def test_what_does_not_fit_is_one_line(place, capsys):
    run, nothing = str(place / "run"), f"sqlite:///{place}/nothing.db"
    assert "must be a URL" in refused(capsys, "worker", str(place / "x.journal"), "--run", run)
    assert "must be reachable, but" in refused(capsys, "worker", "postgresql://me@127.0.0.1:1/x", "--run", run)
    assert "--wait must be 0 seconds or more" in refused(capsys, "worker", nothing, "--run", run, "--wait", "-1")
    wait = ("--wait", "0", "--quiet")
    line = refused(capsys, "worker", nothing, "--run", run, *wait)
    assert "must hold a search that can be joined, but holds none; start it first" in line
    url = announce(place)
    announce(place, "other")
    line = refused(capsys, "worker", url, "--run", run, "--study", "thid", *wait)
    assert "must hold the search 'thid', but holds 'other', 'run'; give its name with --study" in line
    for where in (place / "nowhere", f"file://{place}/nowhere"):
        line = refused(capsys, "worker", url, "--run", where, "--study", "run", *wait)
        assert "nowhere/recipe.yaml must be" in line
    assert "nodriver" in refused(capsys, "worker", url, "--run", "nodriver://x/run", *wait)
    with_notice(url, versions={"cafenet": "0.0.1", "torch": "2"})
    line = refused(capsys, "worker", url, "--run", run, *wait)
    assert "must have the CafeNet of the search, 0.0.1, but has" in line
    assert trials_or_none(url) == []


def trials_or_none(url: str) -> list[str]:
    return [each for each in optuna.get_all_study_names(url) if "/" in each]


def test_the_directory_of_another_recipe_or_supernet_is_refused(place, capsys):
    url, wait = announce(place), ("--wait", "0", "--quiet")
    other = recipe_file(place / "b", **OPTIONS, seed=1)
    run_recipe(load_recipe(str(other)), place / "b" / "run", until="train", quiet=True)
    line = refused(capsys, "worker", url, "--run", place / "b" / "run", *wait)
    assert "its recipe differs" in line
    assert "seed is 0 there and 1 here" in line
    join_search(url, place / "run", wait_seconds=0)
    supernet = place / "run" / "supernet" / "supernet.pt"
    own = supernet.read_bytes()
    supernet.write_bytes((place / "b" / "run" / "supernet" / "supernet.pt").read_bytes())
    with_notice(url, task={**Board(url).read()["run"]["task"], "again": 1})
    assert "must belong to this supernet and data, but is another's (weights was" in refused(
        capsys, "worker", url, "--run", place / "run", *wait
    )
    supernet.write_bytes(own[: len(own) // 2])
    assert "supernet.pt is broken" in refused(capsys, "worker", url, "--run", place / "run", *wait)


def test_a_budget_of_milliseconds_cannot_be_shared(place, capsys):
    line = refused(
        capsys, "run", place / "tiny.yaml", "--budget", "50% latency", "--storage", "sqlite:///x.db", "--quiet"
    )
    assert "must have no budget in milliseconds" in line


def test_a_notice_holds_the_recipe_and_the_versions(place):
    search = shared(place)
    replace(search, name="new").tell(RUNNING)
    notice = Board(search.storage).read()["new"]
    assert notice["task"] is None
    assert notice["recipe"]["budget"] == "50%"
    assert set(notice["versions"]) == {"cafenet", "torch"}
