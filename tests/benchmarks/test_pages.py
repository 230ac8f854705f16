"""The pages of the benchmarks say what was measured, and nothing else: they are made anew from the kept results."""

import importlib
import re
from pathlib import Path

import pytest

from benchmarks.common.places import CIFAR
from benchmarks.common.results_file import Results

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"\d+\.(\d+)")


def is_near(first, second):
    """Two numbers that differ by one in the last digit at most: another CPU may round another way."""
    return abs(float(first.group()) - float(second.group())) < 1.5 * 10.0 ** -len(first.group(1))


@pytest.mark.parametrize(
    ("name", "needs_data"),
    [
        ("ranking", True),
        ("ablations", True),
        ("channel_bench", True),
        ("peers", False),
        ("newcomer", False),
        ("reliability", False),
        ("latency", False),
        ("quantised", False),
        ("store", False),
    ],
)
def test_a_page_is_what_its_results_make(name, needs_data):
    if needs_data and not CIFAR.exists():
        pytest.skip(f"{CIFAR} is not there, which the page's networks are traced for")
    results = Results(ROOT / "benchmarks" / name / "results.json", any_version=True)
    page = importlib.import_module(f"benchmarks.{name}.page").markdown(results)
    kept = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert NUMBER.sub("0.0", page) == NUMBER.sub("0.0", kept)
    assert all(map(is_near, NUMBER.finditer(page), NUMBER.finditer(kept)))
