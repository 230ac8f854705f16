"""Spaces, subnets and results show themselves as tables, on terminals and in notebooks."""

import re

import pytest
import torch
from torch import nn

import cafenet
from cafenet.common.tables import Shown, ranges
from cafenet.searching.result import FoundWidths

RESULT = FoundWidths(
    budget="50%",
    algorithm="evolution",
    widths={"0": 3, "2": 2},
    channels={"0": [0, 1, 4], "2": [0, 1]},
    score=0.81234,
    metric="accuracy",
    costs={"flops": 1234567.0, "params": 999.0, "latency_ms": 1.5},
    usage=0.993,
    num_scored=40,
    num_dropped=31,
    seed=0,
)


@pytest.fixture(scope="module")
def space():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 1), nn.Flatten(), nn.Linear(6, 10))
    return cafenet.trace(model, torch.zeros(1, 3, 3, 3))


def cells(source):
    return [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>(.*?)</tr>", source)]


def test_a_space(space):
    # 3 x 9 x 8 + 8 x 6 + 6 x 10 = 216 + 48 + 60 FLOPs at one place; every channel of the first costs 27 + 6
    text = repr(space)
    assert text.splitlines()[0].strip() == "Width space of Sequential: 2 groups"
    assert re.search(r"^ +0 +8 +81\.5% +33$", text, flags=re.MULTILINE)
    assert "324 FLOPs (one multiply-add is one)" in text
    assert f"{len(space.frozen)} layers frozen" in text
    head, first, _ = cells(space._repr_html_())
    assert head == ["group", "channels", "FLOPs share", "FLOPs per channel"]
    assert first == ["0", "8", "81.5%", "33"]


def test_a_subnet(space):
    subnet = space.subnet(channels={"0": [0, 1, 5], "2": [2]})
    assert re.search(r"^ +0 +3 +0-1, 5$", repr(subnet), flags=re.MULTILINE)
    assert cells(subnet._repr_html_())[1:] == [["0", "3", "0-1, 5"], ["1", "1", "2"]]


def test_a_result():
    assert "50% by evolution: accuracy 0.8123" in repr(RESULT)
    assert "1,234,567 flops, 999 params, 1.50 latency_ms; 99.3% of the budget; 40 widths scored" in repr(RESULT)
    assert cells(RESULT._repr_html_())[1:] == [["0", "3", "0-1, 4"], ["2", "2", "0-1"]]


def test_names_are_escaped_and_markup_stays_text():
    shown = Shown("<b>", ("name [bold]",), [("[red]&<x>",)])
    assert "[red]&<x>" in shown.text()
    assert "&lt;b&gt;" in shown.html()
    assert cells(shown.html())[1] == ["[red]&amp;&lt;x&gt;"]


@pytest.mark.parametrize(("numbers", "words"), [([], ""), ([4], "4"), ([0, 1, 2, 5], "0-2, 5"), ([1, 3], "1, 3")])
def test_ranges(numbers, words):
    assert ranges(numbers) == words
