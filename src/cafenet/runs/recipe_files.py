"""Recipes: shipped ones by name, the user's own by path, both with flags over them; one typed tree checks all."""

import dataclasses
import os
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml
from jsonargparse import ArgumentError, ArgumentParser, Namespace, set_parsing_settings

from cafenet.common.limits import YAML_BYTES
from cafenet.common.options import option_problems
from cafenet.common.suggestions import did_you_mean
from cafenet.common.yaml_text import check_yaml_size, read_yaml
from cafenet.errors import RecipeError
from cafenet.runs.recipe import Recipe

SHIPPED = "runs/recipes"
"""The package's folder of recipes for `cafenet run`; other commands have folders and typed trees of their own."""

Tree = TypeVar("Tree")
"""The dataclass of a whole recipe."""


def shipped_recipes(folder: str = SHIPPED) -> dict[str, str]:
    """The names of the recipes that come with the package, each with its description."""
    texts = {name: _shipped_text(name, folder) for name in _shipped_names(folder)}
    return {name: str(yaml.safe_load(text).get("description", "")) for name, text in texts.items()}


def recipe_text(name: str, folder: str = SHIPPED, listing: str = "cafenet recipes") -> str:
    """The YAML of a shipped recipe or of a file; listing: the command that lists the shipped ones."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or os.path.isfile(name):  # a name may be too long for Path.is_file
        try:
            YAML_BYTES.check(path.stat().st_size, f"the bytes of the recipe {name}", RecipeError)
            return path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"the recipe {name} must be a readable file, but: {_reason(error)}") from error
    shipped = _shipped_names(folder)
    if name not in shipped:
        near = did_you_mean(name, shipped, cutoff=0.4)
        raise RecipeError(
            f"a recipe must be a .yaml file or one of the shipped ones (see `{listing}`), but got {name!r}"
            + (f"; {near}" if near else "")
        )
    return _shipped_text(name, folder)


def load_recipe(name: str, flags: Sequence[str] = ()) -> Recipe:
    """A recipe with flags such as `--budget 25%` over it."""
    return load_tree(Recipe, name, recipe_text(name), flags)


def load_tree(kind: type[Tree], name: str, text: str, flags: Sequence[str] = ()) -> Tree:
    """The YAML of a recipe called `name`, with flags over it, as a typed tree."""
    content = read_yaml(text, f"the recipe {name}") or {}
    if not isinstance(content, dict):
        raise RecipeError(f"the recipe {name} must hold sections (model, data, train, ...), but is {content!r:.60}")
    problems = _unknown_keys(content, kind)
    if problems:
        raise RecipeError(f"the recipe {name} has {'; '.join(problems)}")
    for flag in flags:
        with suppress(yaml.YAMLError):  # a flag need not be YAML
            check_yaml_size(flag.partition("=")[2] if flag.startswith("--") else flag, f"the flag {flag[:40]!r}")
    parser = recipe_parser(kind)
    try:
        base = parser.parse_object(content)
        parsed = parser.parse_args(list(flags), namespace=base)
        problems = option_problems(kind, parsed.as_dict())
        if problems:
            raise RecipeError(f"{name}: {'; '.join(problems)}")
        return as_tree(kind, parser, parsed)
    except ArgumentError as error:
        raise RecipeError(f"{name}: {_explained(error, parser)}") from error


def recipe_parser(kind: type = Recipe, **options: Any) -> ArgumentParser:
    """The parser of the typed tree; every field is a flag, with the sentence under it as its help."""
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = ArgumentParser(exit_on_error=False, allow_abbrev=False, **options)
    parser.add_class_arguments(kind)
    return parser


def as_tree(kind: type[Tree], parser: ArgumentParser, parsed: Namespace) -> Tree:
    """The tree's values as frozen dataclasses."""
    return kind(**vars(parser.instantiate(parsed)))


def as_document(value: Any) -> Any:
    """A recipe as plain values, for YAML and JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_document(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: as_document(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_document(item) for item in value]
    return value


def to_yaml(recipe: Any) -> str:
    """The whole recipe, defaults included, in the tree's order."""
    text: str = yaml.safe_dump(as_document(recipe), sort_keys=False, allow_unicode=True, width=120)
    return text


def _shipped_names(folder: str) -> list[str]:
    entries = files("cafenet").joinpath(folder).iterdir()
    return sorted(entry.name.removesuffix(".yaml") for entry in entries if entry.name.endswith(".yaml"))


def _shipped_text(name: str, folder: str) -> str:
    return files("cafenet").joinpath(folder, f"{name}.yaml").read_text()


def _unknown_keys(content: Mapping[str, Any], kind: type, place: str = "") -> list[str]:
    """Keys that the tree does not have, with the near miss, and sections that hold none."""
    hints = typing.get_type_hints(kind)
    problems = []
    for key, value in content.items():
        where = f"{place}.{key}" if place else str(key)
        if key not in hints:
            hint = did_you_mean(key, hints, most=1) or f"it may be one of {', '.join(hints)}"
            problems.append(f"an unknown key {where!r}; {hint}")
        elif dataclasses.is_dataclass(hints[key]):
            inside = typing.cast(type, hints[key])
            is_section = isinstance(value, dict)
            problems += _unknown_keys(value, inside, where) if is_section else [f"{value!r} for the section {where!r}"]
    return problems


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return "it is not text" if isinstance(error, UnicodeDecodeError) else str(error.strerror)


def _explained(error: ArgumentError, parser: ArgumentParser) -> str:
    """The parser's message on one line; for an unknown flag with the near miss."""
    message = " ".join(str(error.message if getattr(error, "message", None) else error).split())
    unknown = [word.partition("=")[0] for word in message.split() if word.startswith("--")]
    known = [option for action in parser._actions for option in action.option_strings]
    if "nrecognized" in message and unknown:
        near = did_you_mean(unknown[0], known, most=1)
        message = f"there is no flag {unknown[0]}" + (f"; {near}" if near else "")
    return message
