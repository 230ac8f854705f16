"""Seals: digests that files of plain values and lines of a journal carry, so that any changed byte shows.

A flipped bit in a number is still valid JSON: "accuracy": 0.81 becomes 0.91, or 50% becomes 40%.
"""

import json
from collections.abc import Mapping
from typing import Any

from cafenet.common.plain_values import digest_of_values

SEAL = "digest"
"""Key of the digest."""


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the digest of the content at its end.

    Args:
        content: Values that JSON can hold.

    Returns:
        The content with its digest.

    Example:
        >>> from cafenet.common.seals import sealed
        >>> sealed({"accuracy": 0.81})
        {'accuracy': 0.81, 'digest': '7fc9dab636f2ec7c'}
    """
    plain = {str(key): value for key, value in content.items() if key != SEAL}
    return plain | {SEAL: digest_of_values(json.loads(json.dumps(plain)))}


def unsealed(content: dict[str, Any]) -> dict[str, Any] | None:
    """Takes the digest off.

    Args:
        content: The values as they were read. Those without a digest were written by hand or by another program, and
            are believed.

    Returns:
        The content without its digest, or None if it is not the content that the digest was made of.
    """
    if SEAL not in content:
        return content
    plain = {key: value for key, value in content.items() if key != SEAL}
    return plain if digest_of_values(plain) == content[SEAL] else None
