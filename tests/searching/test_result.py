"""The file that a result is kept in."""

import json
from dataclasses import asdict

import pytest

from cafenet.errors import StoreError
from cafenet.searching.result import FoundWidths, is_result_of, read_result, write_result

RESULT = FoundWidths(
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


def test_a_result_knows_what_it_was_asked_for(tmp_path):
    path, asked = tmp_path / "result.json", {"algorithm": "Trend(samples=4)", "search": {"seed": 1}}
    assert not is_result_of(path, asked)
    write_result(RESULT, path, asked)
    assert read_result(path) == RESULT
    assert is_result_of(path, asked)
    assert not is_result_of(path, asked | {"search": {"seed": 2}})
    write_result(RESULT, path)
    assert not is_result_of(path, asked)


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
