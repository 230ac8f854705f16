"""Suggestions for mistyped names."""

import difflib
from collections.abc import Iterable


def near_names(name: object, known: Iterable[object], *, most: int = 3, cutoff: float = 0.5) -> list[str]:
    """Finds known names that are similar to a given one. The case of letters is ignored.

    Args:
        name: The name that is not known.
        known: All known names.
        most: Largest number of suggestions.
        cutoff: Smallest similarity, from 0 to 1.

    Returns:
        The similar names, most similar first. For "adamw" among Adam and AdamW it is AdamW alone.
    """
    spellings: dict[str, list[str]] = {}
    for each in map(str, known):
        spellings.setdefault(each.casefold(), []).append(each)
    wanted = str(name).casefold()
    near = [wanted] if wanted in spellings else difflib.get_close_matches(wanted, spellings, n=most, cutoff=cutoff)
    return [spelling for each in near for spelling in spellings[each]][:most]


def did_you_mean(name: object, known: Iterable[object], *, most: int = 3, cutoff: float = 0.5) -> str:
    """Formats suggestions as a question.

    Args:
        name: The name that is not known.
        known: All known names.
        most: Largest number of suggestions.
        cutoff: Smallest similarity, from 0 to 1.

    Returns:
        A text such as "did you mean AdamW?", or an empty text if no known name is similar.
    """
    near = near_names(name, known, most=most, cutoff=cutoff)
    return f"did you mean {', '.join(near)}?" if near else ""
