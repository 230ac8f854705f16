"""Names that a mistyped one may have meant."""

import difflib
from collections.abc import Iterable


def near_names(name: object, known: Iterable[object], *, most: int = 3, cutoff: float = 0.5) -> list[str]:
    """Known names like this one, the most similar first: for "adamw" among Adam and AdamW it is AdamW alone.

    Names that differ in upper and lower case alone are taken for the same.
    """
    spellings: dict[str, list[str]] = {}
    for each in map(str, known):
        spellings.setdefault(each.casefold(), []).append(each)
    wanted = str(name).casefold()
    near = [wanted] if wanted in spellings else difflib.get_close_matches(wanted, spellings, n=most, cutoff=cutoff)
    return [spelling for each in near for spelling in spellings[each]][:most]


def did_you_mean(name: object, known: Iterable[object], *, most: int = 3, cutoff: float = 0.5) -> str:
    """The question "did you mean AdamW?", or an empty text where no known name is like this one."""
    near = near_names(name, known, most=most, cutoff=cutoff)
    return f"did you mean {', '.join(near)}?" if near else ""
