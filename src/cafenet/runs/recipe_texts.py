"""The YAML of recipes: of shipped ones by name, of the user's own by path."""

import os
from importlib.resources import files
from pathlib import Path

import yaml

from cafenet.common.limits import YAML_BYTES
from cafenet.common.suggestions import did_you_mean
from cafenet.errors import RecipeError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where PyYAML was built with it: it is ten times as fast."""

SHIPPED = "runs/recipes"
"""The package's folder of recipes for `cafenet run`; other commands have folders and typed trees of their own."""


def shipped_recipes(folder: str = SHIPPED) -> dict[str, str]:
    """The names of the recipes that come with the package, each with its description."""
    texts = {name: _shipped_text(name, folder) for name in _shipped_names(folder)}
    return {name: str(yaml.load(text, _LOADER).get("description", "")) for name, text in texts.items()}


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


def _shipped_names(folder: str) -> list[str]:
    entries = files("cafenet").joinpath(folder).iterdir()
    return sorted(entry.name.removesuffix(".yaml") for entry in entries if entry.name.endswith(".yaml"))


def _shipped_text(name: str, folder: str) -> str:
    return files("cafenet").joinpath(folder, f"{name}.yaml").read_text()


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return "it is not text" if isinstance(error, UnicodeDecodeError) else str(error.strerror)
