"""Damaged and foreign files in the directory of `cafenet.search`: named with what to do, never taken for ours."""

import json
import re
from pathlib import Path

import pytest

from cafenet.errors import CafeNetError, RunFileError
from cafenet.pipeline.entries import read_entries
from cafenet.pipeline.first_latencies import as_measured_first, latencies_before
from cafenet.pipeline.stages import place_for
from cafenet.report.run_page import report_html
from cafenet.report.run_records import read_run
from cafenet.runs.directory import RecipeDirectory
from cafenet.runs.recipe import Recipe
from cafenet.searching.algorithms.random_search import RandomSearch
from cafenet.searching.budget import Budget, Cap
from cafenet.searching.latency.measure import LatencyConfig
from tests.helpers.small_training import Plain, Residual, built, config, traced
from tests.pipeline.test_search import found

DAMAGED = {
    "empty": b"",
    "truncated": b'{"format": "cafenet-se',
    "braces": b"{}",
    "binary": b"\x80\xff\x00",
    "list": b"[]",
}


@pytest.fixture(scope="module")
def searched(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("search")
    found(directory=place)
    return place


@pytest.mark.parametrize("kind", DAMAGED)
def test_settings_that_are_damaged_are_named(kind, searched):
    path = searched / "recipe.yaml"
    before = path.read_bytes()
    path.write_bytes(DAMAGED[kind])
    try:
        with pytest.raises(RunFileError, match=r"recipe.yaml must hold the recipe of a run, but .*; put this run's"):
            found(directory=searched)
        (problem,) = read_run(searched).problems
        assert problem.startswith(f"{path} must hold")
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize("kind", DAMAGED)
def test_stages_that_are_damaged_are_named(kind, searched):
    path = searched / "supernet" / "50pct" / "stages.json"
    before = path.read_bytes()
    path.write_bytes(DAMAGED[kind])
    try:
        with pytest.raises(RunFileError, match=r"stages.json must hold the stages of a search, but .*; remove it and"):
            found(directory=searched)
    finally:
        path.write_bytes(before)


def test_a_search_keeps_what_a_run_keeps(searched):
    """Names, keys and places are those of `cafenet run`; the page shows times and the call."""
    assert {path.name for path in searched.iterdir()} == {
        "recipe.yaml",
        "start.json",
        "manifest.json",
        "space.json",
        "entries.json",
        "supernet",
        "models",
    }
    (entry,) = read_entries(searched)
    assert (entry.key, entry.supernet) == ("50pct-cafenet-e", searched / "supernet" / "50pct" / "stage-2")
    run = read_run(searched)
    assert (run.problems, run.missing(), run.recipe["budget"]) == ((), [], "50%")
    assert [study.name for study in run.studies] == ["supernet/50pct/stage-1", "supernet/50pct/stage-2"]
    assert (list(run.manifest["seconds"]), run.manifest["stopped"]) == (["search", "finetune", "compare"], None)
    page = report_html(run)
    assert f"directory=&#x27;{searched.name}&#x27;" in page
    assert "figure-time" in page


@pytest.mark.parametrize(
    ("name", "content"),
    [("search.json", {"format": "cafenet-search", "format_version": 3}), ("manifest.json", {"format_version": 1})],
)
def test_a_directory_of_an_earlier_format_is_refused(name, content, tmp_path):
    (tmp_path / name).write_text(json.dumps(content))
    line = f"{tmp_path} must hold files of format 3, but they have format 1 of another version of CafeNet; "
    for use in (
        lambda: found(directory=tmp_path),
        lambda: RecipeDirectory(tmp_path, Recipe(), []),
        lambda: read_run(tmp_path),
    ):
        with pytest.raises(RunFileError, match=re.escape(line) + "use that version, or give another directory"):
            use()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_later_call_with_another_budget_leaves_the_first_in_the_report(tmp_path):
    """Both are entries with their comparisons; a third call for the first budget takes its place and no other's."""
    found(budget="60%", directory=tmp_path)
    assert read_run(tmp_path).recipe["budget"] == "60%"
    (first,) = read_entries(tmp_path)
    found(budget="45%", directory=tmp_path)
    run = read_run(tmp_path)
    assert [each.budget for each in read_entries(tmp_path)] == ["60%", "45%"]
    assert read_entries(tmp_path)[0] == first
    assert len(run.gains) == 2
    assert (run.recipe["budget"], run.recipe["description"]) == ("60%,45%", "Plain at 60%, 45%")
    assert "earlier" not in run.recipe
    assert "val_data, '60%,45%', " in run.manifest["again"]["command"]
    page = report_html(run)
    assert "CafeNet-E 60%" in page
    assert "CafeNet-E 45%" in page
    found(budget="60%", directory=tmp_path)
    assert [each.budget for each in read_entries(tmp_path)] == ["45%", "60%"]


def test_settings_that_an_earlier_call_had_otherwise_stand_beside_its_budget(tmp_path):
    found(budget="60%", directory=tmp_path)
    found(budget="45%", directory=tmp_path, algorithm=RandomSearch(samples=4))
    for budget in ("45%", "30%"):
        found(budget=budget, directory=tmp_path, algorithm=RandomSearch(samples=4))
        recipe = read_run(tmp_path).recipe
        assert recipe["algorithm"] == {"samples": 4}
        assert list(recipe["earlier"]) == ["60%"]
        assert list(recipe["earlier"]["60%"]) == ["algorithm"]
        assert recipe["earlier"]["60%"]["algorithm"]["population"] == 4


def test_a_later_call_with_another_budget_does_not_hide_the_first_from_the_report(tmp_path):
    for budget in ("60%", "45%", "60%"):
        found(budget=budget, directory=tmp_path)
    assert [each.budget for each in read_entries(tmp_path)] == ["45%", "60%"]
    page = report_html(read_run(tmp_path))
    assert "CafeNet-E 60%" in page
    assert "CafeNet-E 45%" in page


def test_changed_effort_is_refused_before_a_plan_is_printed(tmp_path, capsys):
    found(directory=tmp_path, quiet=False)
    assert "Plan for 50%" in capsys.readouterr().err
    found(directory=tmp_path, quiet=False)
    assert "holds a search already" in capsys.readouterr().err
    with pytest.raises(CafeNetError):
        found(directory=tmp_path, quiet=False, train=config(epochs=9, checkpoint_every=3))
    assert "Plan" not in capsys.readouterr().err


def test_an_interrupted_search_says_where_it_stopped(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("cafenet.pipeline.whole_search.search_in_stages", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            found(directory=tmp_path)
    assert "the step search ended with: division by zero" in read_run(tmp_path).missing()


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_result_that_is_damaged_is_named(kind, searched):
    (path,) = (searched / "supernet" / "50pct" / "stage-1").glob("result-*.json")
    before = path.read_bytes()
    path.write_bytes(DAMAGED[kind])
    try:
        with pytest.raises(CafeNetError, match=r"must be a search result of this version, but: .+; remove it, and the"):
            found(directory=searched)
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize("kind", DAMAGED)
def test_latencies_and_starts_that_are_damaged_are_named(kind, tmp_path):
    (tmp_path / "latencies.json").write_bytes(DAMAGED[kind])
    with pytest.raises(RunFileError, match=r"latencies.json must hold the latencies .*; remove it to measure anew"):
        latencies_before(tmp_path, "5ms", traced(built(Plain)), LatencyConfig())
    if kind != "braces":  # a start with nothing is one
        (tmp_path / "stage-2").mkdir()
        (tmp_path / "stage-2" / "start.json").write_bytes(DAMAGED[kind])
        with pytest.raises(RunFileError, match=r"start.json must hold what a training began with, but .*; remove its"):
            place_for(tmp_path, "stage-2", {"a": [0]})


def test_latencies_of_another_model_are_not_taken(tmp_path):
    """The same budget and settings in one directory: before, the first model's limit was the second one's, too."""
    budget = Budget("50% latency", (Cap("latency_ms", 4.0),))
    plain, residual = traced(built(Plain)), traced(built(Residual))
    as_measured_first(budget, {"latency_ms": 8.0}, plain, LatencyConfig(), tmp_path)
    again, _ = as_measured_first(
        Budget("50% latency", (Cap("latency_ms", 5.0),)), {"latency_ms": 9.0}, plain, LatencyConfig(), tmp_path
    )
    assert again.caps[0].limit == 4.0
    assert latencies_before(tmp_path, "50% latency", plain, LatencyConfig()) == {"limit_ms": 4.0, "full_ms": 8.0}
    assert latencies_before(tmp_path, "50% latency", residual, LatencyConfig()) is None


def test_a_journal_torn_in_the_middle_leads_to_the_same_result(searched, tmp_path):
    expected = found(directory=tmp_path)
    journal = tmp_path / "supernet" / "50pct" / "stage-1" / "trials.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[len(lines) // 2] = lines[len(lines) // 2][:40] + b"\n"
    journal.write_bytes(b"".join(lines))
    for path in tmp_path.glob("supernet/50pct/stage-*/result-*.json"):
        path.unlink()
    again = found(directory=tmp_path)
    assert again.found == expected.found
    assert journal.with_name("trials.journal.damaged").read_bytes() == b"".join(lines)
