"""What the tool that compares two revisions takes for a difference."""

import json

import torch

from tools.docs.same_results import differences, leaves, values_in


def test_values_are_named_by_their_places_and_tensors_by_digests():
    content = {"rows": [{"flops": 3.0, "latency_ms": 1.5}], "model": {"weight": torch.zeros(2, 1)}}
    found = dict(leaves(content, "run"))
    assert list(found) == ["run/rows/0/flops", "run/model/weight"]  # milliseconds are the clock's
    assert found["run/model/weight"].startswith("[2, 1] ")
    assert dict(leaves(torch.zeros(1, 2), "w"))["w"] != dict(leaves(torch.tensor([[0.0, 1e-45]]), "w"))["w"]


def test_tables_and_tensors_of_a_directory_are_compared(tmp_path):
    (tmp_path / "models").mkdir()
    torch.save({"weight": torch.ones(3)}, tmp_path / "models" / "slim.pt")
    (tmp_path / "entries.json").write_text(json.dumps([{"method": "Uniform", "search_score": None}]))
    before = values_in(tmp_path, "run")
    assert {place for place in before if place.endswith(("weight", "method"))} == {
        "run/models/slim.pt/weight",
        "run/entries.json/0/method",
    }
    torch.save({"weight": torch.tensor([1.0, 1.0, 1.0000001])}, tmp_path / "models" / "slim.pt")
    [line] = differences(before, values_in(tmp_path, "run"))
    assert line.startswith("run/models/slim.pt/weight: [3] ")


def test_missing_and_new_values_differ():
    assert list(differences({"a": 1, "b": None}, {"b": None, "c": 2})) == ["a: 1 -> nothing", "c: nothing -> 2"]
