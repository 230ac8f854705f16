"""Names of backbones, and what another network is given of the run's."""

import pytest
from torch import nn

from cafenet.detection.backbone_sources import _classes_of, _key_of
from cafenet.pipeline.entries import Entry


def entry(method: str, budget: str = "50%") -> Entry:
    return Entry(method, budget, None, None, None)


FOUND = [entry("Original", ""), entry("Uniform"), entry("CafeNet-T")]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("50pct-cafenet-t", "50pct-cafenet-t"),
        ("cafenet-t-50pct", "50pct-cafenet-t"),  # the name of the backbone's own directory
        ("50pct-cafenet", "50pct-cafenet-t"),
        ("uniform-50pct", "50pct-uniform"),
        ("50pct-cafenet-e", "50pct-cafenet-e"),  # there is none, which the caller says
        ("50pct", "50pct"),
    ],
)
def test_a_name_means_one_entry(name, key):
    assert _key_of(name, FOUND) == key


def test_two_searches_are_told_apart_by_their_whole_names():
    assert _key_of("50pct-cafenet", [*FOUND, entry("CafeNet-R")]) == "50pct-cafenet"


def test_the_last_linear_layer_has_the_classes():
    assert _classes_of(nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 7))) == {"num_classes": 7}
    assert _classes_of(nn.Conv2d(3, 4, 1)) == {}
