"""The layout of the package in numbers: what stands at its root, its packages, and how they import each other.

    python -m tools.docs.house_figures

The order of the packages is that of import-linter's contract in pyproject.toml, the highest one first.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import grimp
from importlinter.api import read_configuration

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "cafenet"
MANY_LINES = 400


@dataclass(frozen=True)
class Figures:
    """The counts of the package."""

    root_files: list[str]
    packages: dict[str, list[str]]
    """Modules by package, the highest package first."""
    two_way_pairs: list[tuple[str, str]]
    """Parts of the package that import each other, the package's own `__init__` among them as `cafenet`."""
    violations: list[str]
    """Imports against the order, also through other modules."""
    long_files: dict[str, int]
    """Lines of the files with more than MANY_LINES."""


def main() -> None:
    """Print the figures."""
    print("\n".join(lines_of(house_figures())))


def house_figures() -> Figures:
    """The figures of the working tree."""
    graph = grimp.build_graph(PACKAGE.name, cache_dir=None)
    layers = contract_layers()
    return Figures(
        root_files=sorted(path.name for path in PACKAGE.iterdir() if path.is_file()),
        packages={name: modules_of(PACKAGE / name) for name in ordered_packages(layers)},
        two_way_pairs=two_way_pairs(graph),
        violations=violations(graph, layers),
        long_files=long_files(),
    )


def contract_layers() -> list[set[str]]:
    """The layers of the contract, each with the packages that stand side by side in it."""
    (contract,) = read_configuration(str(ROOT / "pyproject.toml"))["contracts_options"]
    return [{name.strip() for name in layer.split("|")} for layer in contract["layers"]]


def ordered_packages(layers: list[set[str]]) -> list[str]:
    """All packages that there are, in the contract's order; those that it does not name come last."""
    names = [name for layer in layers for name in sorted(layer)]
    found = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    return [name for name in names if name in found] + sorted(found - set(names))


def modules_of(package: Path) -> list[str]:
    """`base` and `store.trials`: the modules of a package and of those inside it."""
    paths = [path.relative_to(package).with_suffix("") for path in package.rglob("*.py") if path.stem != "__init__"]
    return sorted(".".join(path.parts) for path in paths)


def two_way_pairs(graph: grimp.ImportGraph) -> list[tuple[str, str]]:
    """Parts of which each imports the other directly."""
    edges = {
        (part_of(module), part_of(imported))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    }
    parts = sorted({part for edge in edges for part in edge})
    return [(one, two) for one, two in combinations(parts, 2) if {(one, two), (two, one)} <= edges]


def part_of(module: str) -> str:
    """`cafenet.space.bins` is of `space`; the package's own `__init__` is `cafenet`."""
    return module.split(".")[min(1, module.count("."))]


def violations(graph: grimp.ImportGraph, layers: list[set[str]]) -> list[str]:
    """One line for each package that reaches a higher one, or one at its side."""
    found = graph.find_illegal_dependencies_for_layers(
        [grimp.Layer(*sorted(layer)) for layer in layers], containers={PACKAGE.name}
    )
    return sorted(f"{each.importer} reaches {each.imported}" for each in found)


def long_files() -> dict[str, int]:
    """The longest files, the longest one first."""
    counts = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    found = {path: count for path, count in counts.items() if count > MANY_LINES}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def lines_of(figures: Figures) -> Iterator[str]:
    """The figures as text."""
    yield f"files at the root: {len(figures.root_files)} ({', '.join(figures.root_files)})"
    num_modules = sum(map(len, figures.packages.values()))
    yield f"packages: {len(figures.packages)}, with {num_modules} modules"
    for name, modules in figures.packages.items():
        yield f"  {name} ({len(modules)}): {', '.join(modules)}"
    yield f"two-way pairs of packages: {len(figures.two_way_pairs)}"
    yield from (f"  {one} and {two}" for one, two in figures.two_way_pairs)
    yield f"imports against the order: {len(figures.violations)}"
    yield from (f"  {line}" for line in figures.violations)
    yield f"files of more than {MANY_LINES} lines: {len(figures.long_files)}"
    yield from (f"  {path}: {count}" for path, count in figures.long_files.items())


if __name__ == "__main__":
    main()
