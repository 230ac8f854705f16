"""The examples in the docstrings of public names run and print what they say, and the public API is documented."""

import doctest
import importlib
import runpy
from pathlib import Path

import pytest

SPACE = [
    *("width_space.Slot", "width_space.WidthGroup", "width_space.Frozen", "width_space.WidthSpace"),
    *("width_space.WidthSpace.flops", "width_space.WidthSpace.widths_dict", "width_space.WidthSpace.run"),
    *("width_space.WidthSpace.extract", "bins.Bins", "bins.flops_sensitive_bins", "bins.uniform_bins"),
    *("verification.verify", "slim_file.save", "slim_file.load", "export.export_model"),
    "importance.sort_by_importance",
]
NAMES = [*(f"space.{name}" for name in SPACE), "tracing.tracer.trace"]
COVERAGE = Path(__file__).parent.parent / "tools" / "docstring_coverage.py"


def documented(name: str) -> object:
    """Imports `space.width_space.WidthSpace.run` as the attribute `WidthSpace.run` of its module."""
    package, module, *attributes = name.split(".")
    found: object = importlib.import_module(f"cafenet.{package}.{module}")
    for attribute in attributes:
        found = getattr(found, attribute)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_example_prints_what_it_says(name):
    finder = doctest.DocTestFinder(recurse=False)
    (found,) = finder.find(documented(name), name, globs={})
    assert found.examples
    output: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found, out=output.append)
    assert result.failed == 0, "".join(output)


@pytest.mark.parametrize("package", ["space", "tracing"])
def test_all_public_parameters_are_documented(package):
    coverage = runpy.run_path(str(COVERAGE))
    definitions = [each for each in coverage["read_definitions"]() if each.package == package]
    found = coverage["measure"](definitions)
    assert found.num_definitions > 10
    assert found.docstring_ratio == 1.0
    assert found.parameter_ratio >= 0.95
