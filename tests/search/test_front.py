"""The front of score against cost, and the file that a result is kept in."""

import json
from dataclasses import asdict

import pytest

from cafenet.errors import StoreError
from cafenet.scoring import Score
from cafenet.searching.front import pareto_front
from cafenet.searching.result import SearchResult, read_result, write_result
from cafenet.searching.store import ScoredWidth


def scored(width, flops, value, *, params=0.0, is_complete=True, is_exact=False):
    score = Score(value, 0, 1, 10, is_complete, 0.0, None)
    return ScoredWidth((width,), score, {"flops": flops, "params": params}, "s", "", 0.0, is_exact)


def front(*widths, **options):
    return [(each.taken[0], each.score.value) for each in pareto_front(widths, **options)]


def test_the_smallest_example():
    assert front(scored(1, 100, 0.80), scored(2, 90, 0.81), scored(3, 50, 0.70)) == [(3, 0.70), (2, 0.81)]


def test_of_equals_the_cheaper_and_then_the_better_one_stays():
    assert front(scored(1, 60, 0.7), scored(2, 50, 0.7), scored(3, 50, 0.6)) == [(2, 0.7)]


def test_the_exact_score_of_a_width_counts_wherever_it_stands():
    raced, exact = scored(1, 50, 0.9), scored(1, 50, 0.6, is_exact=True)
    assert front(raced, exact, scored(2, 60, 0.7)) == front(exact, scored(2, 60, 0.7), raced) == [(1, 0.6), (2, 0.7)]


def test_dropped_widths_do_not_count():
    assert front(scored(1, 10, 0.9, is_complete=False), scored(2, 50, 0.5)) == [(2, 0.5)]
    assert front() == []


def test_another_cost():
    widths = [scored(1, 100, 0.8, params=5), scored(2, 90, 0.7, params=9)]
    assert front(*widths, cost="params") == [(1, 0.8)]
    assert front(*widths) == [(2, 0.7), (1, 0.8)]


RESULT = SearchResult(
    budget="50%+2M params",
    algorithm="evolution",
    widths={"one": 2, "layer.two": 1},
    channels={"one": [0, 3], "layer.two": [5]},
    score=0.1 + 0.2,
    metric="accuracy",
    costs={"flops": 1e15 + 1, "params": 3.0},
    usage=0.999,
    num_scored=40,
    num_dropped=7,
    seed=3,
)


def test_a_result_that_is_written_is_read(tmp_path):
    path = tmp_path / "a" / "b" / "result.json"
    write_result(RESULT, path)
    assert read_result(path) == RESULT
    write_result(RESULT, path)
    assert [each.name for each in path.parent.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "[]",
        "{}",
        json.dumps(asdict(RESULT)),
        json.dumps({"format": "cafenet-search-result", "format_version": 99, **asdict(RESULT)}),
        json.dumps({"format": "another", "format_version": 1, **asdict(RESULT)}),
        json.dumps({"format": "cafenet-search-result", "format_version": 1, "score": 1.0}),
    ],
)
def test_what_is_no_result_is_refused(text, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(StoreError, match="must be a search result of this version, but"):
        read_result(path)


def test_a_missing_result_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="must be a search result of this version, but"):
        read_result(tmp_path / "none.json")
