"""The layout of the package is the architecture: nothing else at its root, and imports that go down."""

import re
from importlib import import_module
from pathlib import Path

import grimp
import pytest

from tools.docs.house_figures import Figures, contract_layers, house_figures, lines_of, two_way_pairs, violations


@pytest.fixture(scope="module")
def figures() -> Figures:
    return house_figures()


def test_the_root_holds_packages_and_little_else(figures):
    assert figures.root_files == ["__init__.py", "__main__.py", "errors.py", "py.typed"]
    assert all(figures.packages.values())


def test_imports_go_down(figures):
    assert figures.two_way_pairs == []
    assert figures.violations == []


def test_what_goes_up_sideways_or_both_ways_is_found():
    graph = grimp.build_graph("cafenet", cache_dir=None)
    imports = [("models.vgg", "data.npz"), ("common.files", "space.bins"), ("space.bins", "common.files")]
    for importer, imported in imports:
        graph.add_import(importer=f"cafenet.{importer}", imported=f"cafenet.{imported}")
    assert two_way_pairs(graph) == [("common", "space")]
    found = violations(graph, contract_layers())
    assert {"cafenet.models reaches cafenet.data", "cafenet.common reaches cafenet.space"} <= set(found)


def test_the_figures_can_be_read(figures):
    text = "\n".join(lines_of(figures))
    assert "two-way pairs of packages: 0\nimports against the order: 0\n" in text
    assert "\n  space (" in text


@pytest.mark.parametrize("path", sorted(Path("tools").rglob("*.py")), ids=str)
def test_tools_find_what_they_import(path):
    import_module(".".join(path.with_suffix("").parts))


def test_no_file_is_long(figures):
    assert figures.long_files == {}


def test_the_architecture_page_names_every_module(figures):
    """The networks of `models`, the commands of `cli` and what lies in deeper folders are named together."""
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", Path("docs/architecture.md").read_text(), flags=re.MULTILINE)
    named = {package: set(re.findall(r"`(\w+)/?`", text)) for package, text in rows}
    missing = {
        f"{package}.{module}"
        for package, modules in figures.packages.items()
        for module in (each.split(".")[0] for each in modules)
        if package not in ("models", "cli") and module not in named[package]
    }
    assert missing == set()
