"""Prints how much of the public API has docstrings, per package and overall.

Public is every class, function and method whose own name, and the names around it, do not begin with an underscore.
Two shares are printed: definitions that have a docstring, and parameters that are documented. A parameter of a function
is documented if the `Args:` section of the function names it. A parameter of `__init__` may stand in the docstring of
its class instead. A field of a dataclass is documented by a docstring under it, or by an `Args:` or `Attributes:`
section of the class.

Smallest example: `def double(value): "Doubles."` counts as 1 of 1 docstrings and 0 of 1 parameters.

    python tools/docs/docstring_coverage.py                      # the table
    python tools/docs/docstring_coverage.py --missing space      # and what is missing in a package
    python tools/docs/docstring_coverage.py --at-least 95        # exit code 1 if a share overall is below 95%
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "cafenet"

_SECTION = re.compile(r"^(?P<name>Args|Attributes):\s*$")
_ENTRY = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?:\s")
_FIELD_CLASSES = {"dataclass", "NamedTuple", "TypedDict"}

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Definition:
    """One public class, function or method, and which of its parameters are documented."""

    package: str
    """The first part of the path below the source directory, for example `space` or `errors`."""
    place: str
    """The file, the line and the qualified name, for error messages."""
    has_docstring: bool
    """Whether the definition has a docstring of its own."""
    documented: tuple[str, ...]
    """Names of the parameters or fields that are documented."""
    undocumented: tuple[str, ...]
    """Names of the parameters or fields that are not documented."""


@dataclass(frozen=True)
class Coverage:
    """Counts of documented things in one package or in several."""

    num_definitions: int
    """Number of public classes, functions and methods."""
    num_with_docstring: int
    """Number of those that have a docstring."""
    num_parameters: int
    """Number of parameters and fields of those."""
    num_documented: int
    """Number of parameters and fields that are documented."""

    @property
    def docstring_ratio(self) -> float:
        """Share of definitions that have a docstring; 1 if there are none."""
        return self.num_with_docstring / self.num_definitions if self.num_definitions else 1.0

    @property
    def parameter_ratio(self) -> float:
        """Share of parameters that are documented; 1 if there are none."""
        return self.num_documented / self.num_parameters if self.num_parameters else 1.0


def read_definitions(root: Path = PACKAGE) -> list[Definition]:
    """Reads all public definitions of a source tree without importing it.

    Args:
        root: The directory of the package, whose subdirectories are the rows of the table.

    Returns:
        The definitions in the order of the files and of the lines.
    """
    found: list[Definition] = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if any(_is_private(part) for part in relative.with_suffix("").parts):
            continue
        package = relative.with_suffix("").parts[0]
        found += _of_body(ast.parse(path.read_text(encoding="utf-8")).body, package, str(relative), "")
    return found


def measure(definitions: list[Definition]) -> Coverage:
    """Counts what is documented.

    Args:
        definitions: Definitions from `read_definitions`, all of them or those of one package.

    Returns:
        The counts, with the shares as properties.
    """
    return Coverage(
        num_definitions=len(definitions),
        num_with_docstring=sum(each.has_docstring for each in definitions),
        num_parameters=sum(len(each.documented) + len(each.undocumented) for each in definitions),
        num_documented=sum(len(each.documented) for each in definitions),
    )


def documented_names(docstring: str | None) -> set[str]:
    """Collects the names that the `Args:` and `Attributes:` sections of a Google style docstring explain.

    Args:
        docstring: The text as it stands in the source, or None.

    Returns:
        The names without stars. An entry `low, high: Limits.` gives both names.
    """
    names: set[str] = set()
    section_indent = entry_indent = -1
    for line in (docstring or "").expandtabs().splitlines():
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if _SECTION.match(text):
            section_indent, entry_indent = indent, -1
        elif section_indent >= 0 and text:
            if indent <= section_indent:
                section_indent = -1
                continue
            entry_indent = indent if entry_indent < 0 else entry_indent
            match = _ENTRY.match(text + " ")
            if match and indent == entry_indent:
                names |= {name.lstrip("*") for name in match["names"].split(", ")}
    return names


def _is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def _of_body(body: list[ast.stmt], package: str, file: str, prefix: str) -> Iterator[Definition]:
    """All public definitions of a module or of a class, and of the classes in it."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from _of_body(node.body, package, file, prefix)
        if not isinstance(node, ast.ClassDef | FunctionNode) or node.name.startswith("_"):
            continue
        if _decorators(node) & {"overload", "setter", "deleter"}:
            continue
        name = prefix + node.name
        bin_counts = (
            _fields(node) | _init_names(node) if isinstance(node, ast.ClassDef) else _parameters(node, bool(prefix))
        )
        yield Definition(
            package,
            f"{file}:{node.lineno} {name}",
            ast.get_docstring(node) is not None,
            tuple(each for each, is_documented in bin_counts.items() if is_documented),
            tuple(each for each, is_documented in bin_counts.items() if not is_documented),
        )
        if isinstance(node, ast.ClassDef):
            yield from _of_body(node.body, package, file, name + ".")


def _decorators(node: ast.ClassDef | FunctionNode) -> set[str]:
    """The last names of all decorators: `dataclass` for `@dataclasses.dataclass(frozen=True)`."""
    return {_last_name(each) for each in node.decorator_list}


def _last_name(node: ast.expr) -> str:
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _parameters(node: FunctionNode, is_method: bool, also: frozenset[str] = frozenset()) -> dict[str, bool]:
    """Each parameter of a function, and whether it is documented."""
    args = node.args
    every = [*args.posonlyargs, *args.args]
    if is_method and "staticmethod" not in _decorators(node):
        every = every[1:]
    every += [*([args.vararg] if args.vararg else []), *args.kwonlyargs, *([args.kwarg] if args.kwarg else [])]
    known = documented_names(ast.get_docstring(node, clean=False)) | also
    return {each.arg: each.arg in known for each in every if not each.arg.startswith("_")}


def _init_names(node: ast.ClassDef) -> dict[str, bool]:
    """The parameters of `__init__`, which the docstring of the class may explain."""
    also = frozenset(documented_names(ast.get_docstring(node, clean=False)))
    for each in node.body:
        if isinstance(each, FunctionNode) and each.name == "__init__":
            return _parameters(each, True, also)
    return {}


def _fields(node: ast.ClassDef) -> dict[str, bool]:
    """The public fields of a dataclass (or a named tuple, or a typed dict), and whether they are documented."""
    if not (_decorators(node) | {_last_name(base) for base in node.bases}) & _FIELD_CLASSES:
        return {}
    known = documented_names(ast.get_docstring(node, clean=False))
    fields: dict[str, bool] = {}
    for each, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name):
            continue
        name = each.target.id
        if name.startswith("_") or _last_name(each.annotation) == "ClassVar":
            continue
        fields[name] = name in known or _is_text(after)
    return fields


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _print_table(definitions: list[Definition]) -> None:
    packages = sorted({each.package for each in definitions})
    print(f"{'package':<12} {'docstrings':>18} {'parameters':>18}")
    for package in [*packages, "all"]:
        found = measure([each for each in definitions if package in (each.package, "all")])
        print(
            f"{package:<12} {found.num_with_docstring:>5}/{found.num_definitions:<5} {found.docstring_ratio:>6.1%} "
            f"{found.num_documented:>5}/{found.num_parameters:<5} {found.parameter_ratio:>6.1%}"
        )


def _print_missing(definitions: list[Definition]) -> None:
    for each in definitions:
        missing = [*([] if each.has_docstring else ["docstring"]), *each.undocumented]
        if missing:
            print(f"{each.place}: {', '.join(missing)}")


def main() -> int:
    """Prints the table, and returns 1 if a share overall is below `--at-least`."""
    parser = argparse.ArgumentParser(description="Share of the public API that has docstrings.")
    parser.add_argument("--missing", nargs="*", metavar="PACKAGE", help="list what is missing (in these packages)")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="PERCENT", help="fail below this share")
    parser.add_argument("--root", type=Path, default=PACKAGE, help="directory of the package")
    options = parser.parse_args()
    definitions = read_definitions(options.root)
    _print_table(definitions)
    if options.missing is not None:
        _print_missing([each for each in definitions if not options.missing or each.package in options.missing])
    found = measure(definitions)
    return int(100 * min(found.docstring_ratio, found.parameter_ratio) < options.at_least)


if __name__ == "__main__":
    sys.exit(main())
