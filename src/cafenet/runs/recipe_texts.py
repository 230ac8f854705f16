"""The YAML of recipes: shipped ones are found by name, the user's own by path."""

import os
from importlib.resources import files
from pathlib import Path

import yaml

from cafenet.common.limits import YAML_BYTES
from cafenet.common.suggestions import did_you_mean
from cafenet.errors import RecipeError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of libyaml if PyYAML was built with it, since it is ten times as fast."""

SHIPPED = "runs/recipes"
"""The package's folder of recipes for `cafenet run`; other commands have folders and typed trees of their own."""
DETECTION = "detection/recipes"
"""The package's folder of recipes for `cafenet detect`."""


def shipped_recipes(folder: str = SHIPPED) -> dict[str, str]:
    """Return the recipes that come with the package.

    Args:
        folder: Folder of recipes inside the package.

    Returns:
        The description of each recipe, by name.
    """
    texts = {name: _shipped_text(name, folder) for name in _shipped_names(folder)}
    return {name: str(yaml.load(text, _LOADER).get("description", "")) for name, text in texts.items()}


def recipe_text(name: str, folder: str = SHIPPED, listing: str = "cafenet recipes") -> str:
    """Return the YAML of a shipped recipe or of a file.

    Args:
        name: Name of a shipped recipe, or path of a file.
        folder: Folder of shipped recipes inside the package.
        listing: Command that lists the shipped recipes, for the error message.

    Returns:
        The text of the recipe.

    Raises:
        RecipeError: If the file is too large or not readable, or no shipped recipe has the name.
    """
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
    return files("cafenet").joinpath(folder).joinpath(f"{name}.yaml").read_text()


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return "it is not text" if isinstance(error, UnicodeDecodeError) else str(error.strerror)
