"""Options as plain values: NumPy numbers become Python numbers, because files can hold only these."""

import hashlib
import json
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

Value = TypeVar("Value")


def plain_numbers(value: Value) -> Value:
    """Converts NumPy numbers to Python numbers, also inside dicts, lists, tuples and dataclasses.

    Args:
        value: Any value. It is not changed.

    Returns:
        The value with converted numbers.
    """
    return _plain(value)  # type: ignore[no-any-return]


def digest_of_values(content: Any) -> str:
    """Returns a short digest of plain values, such as those of a YAML file; the order of keys does not count.

    Args:
        content: The values.

    Returns:
        16 hexadecimal digits.
    """
    text = json.dumps(content, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is dict:  # a state dict is of another class and is left alone
        return {key: _plain(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(each) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        before = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        now = {name: _plain(each) for name, each in before.items()}
        changed = {name: each for name, each in now.items() if each is not before[name]}
        return replace(value, **changed) if changed else value
    return value
