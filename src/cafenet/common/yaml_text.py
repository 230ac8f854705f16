"""YAML of a user, read within limits: a few lines of YAML may nest thousands deep, or expand to billions of values."""

from typing import Any

import yaml

from cafenet.common.limits import YAML_BYTES, YAML_DEPTH, YAML_NODES
from cafenet.errors import RecipeError


def read_yaml(text: str, name: str) -> Any:
    """Reads plain values from YAML.

    Args:
        text: The YAML text.
        name: Name of the text in messages.

    Returns:
        The plain values.

    Raises:
        RecipeError: If the text is not valid YAML, or exceeds a limit.
    """
    try:
        check_yaml_size(text, name)
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an invalid date
        raise RecipeError(f"{name} must be YAML, but: {' '.join(str(error).split())}") from error


def check_yaml_size(text: str, name: str) -> None:
    """Refuses a text that is too long, too deep or has too many values, before any value is built.

    Args:
        text: The YAML text.
        name: Name of the text in messages.

    Raises:
        RecipeError: If the text exceeds a limit, or an alias contains itself.
    """
    YAML_BYTES.check(len(text), f"the bytes of {name}", RecipeError)
    sizes: dict[str, int] = {}  # number of values of each anchor
    open_nodes: list[tuple[str | None, int]] = []
    num_nodes = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, (yaml.CollectionStartEvent, yaml.ScalarEvent)):
            num_nodes += 1
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, num_nodes))
            YAML_DEPTH.check(len(open_nodes), f"the depth of {name}", RecipeError)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = num_nodes - before + 1
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_nodes):
                raise RecipeError(f"{name} must hold plain values, but *{event.anchor} stands for itself")
            num_nodes += sizes.get(str(event.anchor), 1)
        YAML_NODES.check(num_nodes, f"the values of {name}, aliases written out,", RecipeError)
