"""Recipes with flags over them, as typed trees; one tree checks a recipe and declares its flags."""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import yaml
from jsonargparse import ArgumentError, ArgumentParser, Namespace, set_parsing_settings

from cafenet.common.options import option_problems
from cafenet.common.suggestions import did_you_mean
from cafenet.common.yaml_text import check_yaml_size, read_yaml
from cafenet.errors import RecipeError
from cafenet.runs.paper import as_in_the_paper
from cafenet.runs.recipe import Recipe
from cafenet.runs.recipe_texts import recipe_text

Tree = TypeVar("Tree")
"""The dataclass of a whole recipe."""


def load_recipe(name: str, flags: Sequence[str] = ()) -> Recipe:
    """Load a recipe of `cafenet run`.

    Args:
        name: Name of a shipped recipe, or path of a file.
        flags: Flags that replace values, such as `["--budget", "25%"]`.

    Returns:
        The recipe.

    Raises:
        RecipeError: If there is no such recipe, or a key or value is wrong.
    """
    return _described(as_in_the_paper(load_tree(Recipe, name, recipe_text(name), flags)), flags)


def _described(recipe: Recipe, flags: Sequence[str]) -> Recipe:
    """Return the recipe with a description that is true: flags may have replaced what its own one says."""
    given = {flag.partition("=")[0] for flag in flags}
    if not recipe.description or "--description" in given or not given & {"--model.name", "--data.source", "--budget"}:
        return recipe
    return dataclasses.replace(recipe, description=f"{recipe.model.name} on {recipe.data.source} at {recipe.budget}")


def load_tree(kind: type[Tree], name: str, text: str, flags: Sequence[str] = ()) -> Tree:
    """Parse the YAML of a recipe, with flags over it, into a typed tree.

    Args:
        kind: The dataclass of the whole recipe.
        name: Name of the recipe in error messages.
        text: The YAML.
        flags: Flags that replace values.

    Returns:
        The recipe.

    Raises:
        RecipeError: If the text is not YAML, or a key, a value or a flag is wrong.
    """
    content = read_yaml(text, f"the recipe {name}") or {}
    if not isinstance(content, dict):
        raise RecipeError(f"the recipe {name} must hold sections (model, data, train, ...), but is {content!r:.60}")
    _expect_own_kind(content, kind, name)
    problems = _unknown_keys(content, kind)
    if problems:
        raise RecipeError(f"the recipe {name} has {'; '.join(problems)}")
    for flag in flags:
        with suppress(yaml.YAMLError):  # the value of a flag need not be YAML
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


def _expect_own_kind(content: Mapping[Any, Any], kind: type, name: str) -> None:
    """Refuse a recipe of the other command, which would have many unknown keys."""
    own = {field.name for field in dataclasses.fields(kind)}
    for key, command, other in (("backbones", "detect", "run"), ("supernet", "run", "detect")):
        if key in content and key not in own:
            raise RecipeError(
                f"a recipe of `cafenet {other}` is needed here, but {name} is one of `cafenet {command}` (it has "
                f"{key!r}); use `cafenet {command}`, or give a run or recipe of `cafenet {other}`"
            )


def recipe_parser(kind: type = Recipe, **options: Any) -> ArgumentParser:
    """Build the parser of a typed tree; every field is a flag, with the docstring under it as its help.

    Args:
        kind: The dataclass of the whole recipe.
        **options: Arguments of `jsonargparse.ArgumentParser`.

    Returns:
        The parser.
    """
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = ArgumentParser(exit_on_error=False, allow_abbrev=False, **options)
    parser.add_class_arguments(kind)
    return parser


def as_tree(kind: type[Tree], parser: ArgumentParser, parsed: Namespace) -> Tree:
    """Turn parsed values into frozen dataclasses.

    Args:
        kind: The dataclass of the whole recipe.
        parser: The parser from `recipe_parser`.
        parsed: The parsed values.

    Returns:
        The recipe.
    """
    return kind(**vars(parser.instantiate(parsed)))


def as_document(value: Any) -> Any:
    """Return a recipe as plain values, for YAML and JSON.

    Args:
        value: A recipe, a part of one, or a plain value.

    Returns:
        Dicts, lists and plain values.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_document(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: as_document(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_document(item) for item in value]
    return value


def to_yaml(recipe: Any) -> str:
    """Return a whole recipe as YAML, including defaults, in the order of the tree.

    Args:
        recipe: The recipe.

    Returns:
        The text.
    """
    text: str = yaml.safe_dump(as_document(recipe), sort_keys=False, allow_unicode=True, width=120)
    return text


def _unknown_keys(content: Mapping[str, Any], kind: type, place: str = "") -> list[str]:
    """Return keys that the tree does not have, with the nearest known key, and sections with a value in place
    of keys."""
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


def _explained(error: ArgumentError, parser: ArgumentParser) -> str:
    """Return the parser's message on one line; for an unknown flag, with the nearest known flag."""
    message = " ".join(str(error.message if getattr(error, "message", None) else error).split())
    unknown = [word.partition("=")[0] for word in message.split() if word.startswith("--")]
    known = [option for action in parser._actions for option in action.option_strings]
    if "nrecognized" in message and unknown:
        near = did_you_mean(unknown[0], known, most=1)
        message = f"there is no flag {unknown[0]}" + (f"; {near}" if near else "")
    return message
