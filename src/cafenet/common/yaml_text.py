"""YAML of a user's, read within limits: a few lines of it may nest thousands deep, or stand for billions of values."""

from typing import Any

import yaml

from cafenet.common.limits import YAML_BYTES, YAML_DEPTH, YAML_NODES
from cafenet.errors import RecipeError


def read_yaml(text: str, name: str) -> Any:
    """The plain values of a text called `name` in messages."""
    try:
        check_yaml_size(text, name)
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
        raise RecipeError(f"{name} must be YAML, but: {' '.join(str(error).split())}") from error


def check_yaml_size(text: str, name: str) -> None:
    """Refuse texts that are too long, too deep or hold too many values, before anything is built of them."""
    YAML_BYTES.check(len(text), f"the bytes of {name}", RecipeError)
    sizes: dict[str, int] = {}  # of what an anchor stands for
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
