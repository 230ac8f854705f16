"""The pages of the benchmarks say what was measured, and nothing else: they are made anew from the kept results."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def module(name):
    try:
        return importlib.import_module(f"benchmarks.{name}")
    except ImportError as error:  # of what only benchmarks need
        pytest.skip(f"the benchmarks can not be imported: {error}")


@pytest.mark.parametrize(("name", "needs_data"), [("ranking", True), ("ablations", True), ("peers", False)])
def test_a_page_is_what_its_results_make(name, needs_data, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    if needs_data and not module("places").CIFAR.exists():
        pytest.skip(f"{module('places').CIFAR} is not there, which the page's networks are traced for")
    results = module("search_results").Results(ROOT / "benchmarks" / name / "results.json", any_version=True)
    page = module(f"{name}.page").markdown(results)
    assert page == (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
